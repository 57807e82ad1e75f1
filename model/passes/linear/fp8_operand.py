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

VALUES = torch.float8_e4m3fn
"""Format of inputs and weights."""
GRADIENTS = torch.float8_e5m2
"""Format of gradients."""
SMALLEST = 2.0**-100
"""Largest values below this one count as it, zero among them: a factor and its reciprocal stay FP32 numbers."""

EXPONENT = 0x7F800000
"""Bits of an FP32 number's exponent: a positive number without its other bits is rounded down to a power of two."""


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


def largest_value(x: Tensor) -> Tensor:
    """Return the largest absolute value, an FP32 scalar; zero of a tensor without values."""
    if x.numel() == 0:
        return torch.zeros((), device=x.device)
    if x.is_cuda:  # one kernel instead of four; on a CPU it takes thirty times as long as the following
        largest: Tensor = torch.linalg.vector_norm(x, float("inf"), dtype=torch.float32)
        return largest
    low, high = x.aminmax()
    return torch.maximum(-low, high).float()


def scale_for(largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the largest powers of two that keep ``largest``, times them, within the range of ``dtype``.

    NaN for a value that is not finite: E4M3 has no infinity, and a cast to it would make a finite number of one. All
    products of such a tensor are NaN, and the check of the gradient's norm sees them.
    """
    ratio = torch.finfo(dtype).max / largest.clamp(min=SMALLEST)
    power = (ratio.view(torch.int32) & EXPONENT).view(torch.float32)
    return power + (largest - largest)  # infinity less infinity is NaN


def cast(x_TF: Tensor, dtype: torch.dtype, *, keeps_rows: bool, transposed: bool) -> Operand:
    """Return ``x_TF`` in FP8: its rows if ``keeps_rows``, and its transpose if ``transposed``."""
    scale = scale_for(largest_value(x_TF), dtype)
    rows = torch.empty(x_TF.shape, dtype=dtype, device=x_TF.device)
    torch.mul(x_TF, scale, out=rows)
    return Operand(rows if keeps_rows else None, transpose_of(rows) if transposed else None, scale.reciprocal())


def transpose_of(rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the transpose of FP8 numbers as a tensor of its own, ``out`` if there is one. Bytes are moved as bytes."""
    if out is None:
        out = torch.empty(rows.shape[1], rows.shape[0], dtype=rows.dtype, device=rows.device)
    out.view(torch.uint8).copy_(rows.view(torch.uint8).t())
    return out


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
