"""A tensor in FP8 as the matrix products take it, and these products.

Scaling is that of today's published runs: one factor for a tensor, from its present largest value, so that no history
is kept and no checkpoint has one (docs/facts/fp8.md 2). Inputs and weights are E4M3, gradients E5M2. The factor is
rounded down to a power of two. So it changes no bit of a number but its exponent, and the tensor-parallel ranks, whose
parts of a tensor have different largest values, round as one rank does (docs/facts/fp8.md 3).

The products ask for both operands along the dimension that is summed (docs/facts/fp8.md 3): the forward pass takes a
tensor's rows, and the weight gradient its transpose.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.passes.linear.fp8_kernels import (
    scale_and_reciprocal,
    scaled_rows,
    scaled_rows_and_transpose,
    scaled_transpose,
)


@dataclass(slots=True)
class Operand:
    """A tensor of T rows in FP8. A part that no product needs any more is None."""

    rows: Tensor | None
    """[T, F]"""
    transpose: Tensor | None
    """[F, T]"""
    reciprocal: Tensor
    """FP32 scalar: the tensor over these numbers."""
    unscaled: Tensor | None = None
    """The tensor itself, for weight gradients in BF16."""


def cast(x_TF: Tensor, dtype: torch.dtype, *, keeps_rows: bool, transposed: bool) -> Operand:
    """Return ``x_TF`` in FP8: its rows if ``keeps_rows``, and its transpose if ``transposed``."""
    scale, reciprocal = scale_and_reciprocal(x_TF, dtype)
    if keeps_rows and transposed:
        return Operand(*scaled_rows_and_transpose(x_TF, scale, dtype), reciprocal)
    if transposed:
        return Operand(None, scaled_transpose(x_TF, scale, dtype), reciprocal)
    return Operand(scaled_rows(x_TF, scale, dtype), None, reciprocal)


def product(
    left: Tensor,
    right: Tensor,
    reciprocals: tuple[Tensor, Tensor],
    dtype: torch.dtype,
    *,
    fast: bool = False,
    bias: Tensor | None = None,
) -> Tensor:
    """Return left right^T (+ ``bias``) in ``dtype``; both are FP8 [., K], and ``reciprocals`` theirs.

    ``fast``: on Hopper, sums are kept in fewer bits between the steps of a product. As in published runs, forward
    passes do so and gradients do not.
    """
    result: Tensor = torch._scaled_mm(left, right.t(), *reciprocals, bias=bias, out_dtype=dtype, use_fast_accum=fast)
    return result
