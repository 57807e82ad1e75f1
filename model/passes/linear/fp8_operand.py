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
    largest_or_infinity,
    scale_and_reciprocal,
    scaled_rows,
    scaled_rows_and_transpose,
    scaled_transpose,
    transpose_of,
)
from model.passes.linear.raw_operand import OperandGather, RawOperand, Scale
from model.passes.tensor_group import Pending, TensorGroup, waited


@dataclass(slots=True)
class Operand:
    """A tensor of T rows in FP8. A part that no product needs any more is None."""

    rows: Tensor | None
    """[T, F]"""
    transpose: Tensor | None
    """[F, T]"""
    scale: Scale
    unscaled: Tensor | None = None
    """The tensor itself, for weight gradients in BF16."""

    @property
    def reciprocal(self) -> Tensor:
        """FP32 scalar: the tensor over these numbers."""
        return self.scale[1]


def cast(x: RawOperand, dtype: torch.dtype, *, keeps_rows: bool, transposed: bool) -> Operand:
    """Return ``x`` in FP8: its rows if ``keeps_rows``, and its transpose if ``transposed``."""
    scale = x.scale or scale_and_reciprocal(x.tensor if x.largest is None else x.largest, dtype)
    factor, _ = scale
    if x.tensor.dtype == dtype:
        return Operand(x.tensor if keeps_rows else None, transpose_of(x.tensor) if transposed else None, scale)
    if keeps_rows and transposed:
        return Operand(*scaled_rows_and_transpose(x.tensor, factor, dtype), scale)
    if transposed:
        return Operand(None, scaled_transpose(x.tensor, factor, dtype), scale)
    return Operand(scaled_rows(x.tensor, factor, dtype), None, scale)


class Fp8Gather(OperandGather):
    """The gather of rows in FP8, by the scale of all ranks: the numbers that a cast of the gathered tensor has, in half
    the bytes. One message finds the largest value of the ranks; ``send`` waits for it, and casts this rank's rows.

    A group of one rank leaves the cast, with the transpose, for later.
    """

    def __init__(self, x: RawOperand, dtype: torch.dtype, group: TensorGroup) -> None:
        super().__init__(Pending(x.tensor), x.largest)
        self._x: RawOperand | None = x
        self._dtype, self._group, self._scale = dtype, group, x.scale
        if group.size > 1 and x.scale is None:
            largest_of_rank = largest_or_infinity(x.tensor if x.largest is None else x.largest)
            self._maximum = group.maximum(largest_of_rank)

    def send(self) -> None:
        if self._x is None or self._group.size == 1:
            return
        if self._scale is None:
            self._scale = scale_and_reciprocal(waited(self._maximum), self._dtype)
        rows = scaled_rows(self._x.tensor, self._scale[0], self._dtype)
        self._x = None
        pending = self._group.gather(rows.view(torch.uint8))
        self.pending = Pending(pending.result.view(self._dtype), pending.work, pending.source)

    def _operand(self, tensor: Tensor) -> RawOperand:
        return RawOperand(tensor, self._largest, self._scale)


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
