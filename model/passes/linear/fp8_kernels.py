"""The kernels around FP8 products: one finds a tensor's scale, one casts the tensor, with its transpose or only to it,
and one adds the products of several micro-batches to a weight's gradient.

The scale is found from the largest values of parts of the tensor, where the kernel that made it left them
(model/measuring_kernels.py), and else by reading it.

On a GPU they are compiled (model/fused_kernel.py); the transposing copy of PyTorch itself moves bytes at a tenth of the
memory's rate (pytorch#113560).
"""

import math

import torch
from torch import Tensor

from model.fused_kernel import fused

VALUES = torch.float8_e4m3fn
"""Format of inputs and weights."""
GRADIENTS = torch.float8_e5m2
"""Format of gradients."""
SMALLEST = 2.0**-100
"""Largest values below this one count as it, zero among them: a factor and its reciprocal stay FP32 numbers."""

EXPONENT_SHIFT, EXPONENT_BIAS = 23, 127
"""Of the bits of an FP32 number."""
BELOW_TOP_MANTISSA = (1 << 21) - 1
"""Added to a number's bits, it carries into the exponent if the mantissa is above 1.75, which both formats end with."""


@fused(1)
def scale_and_reciprocal(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the factor to the range of ``dtype``, and its reciprocal: FP32 scalars. ``x``: a tensor, or the largest
    values of its parts."""
    return scale_for(largest_value(x), dtype)


@fused(1)
def largest_or_infinity(x: Tensor) -> Tensor:
    """Return the largest absolute value, and infinity for one that is not finite: of a number and NaN the maximum over
    ranks may be either, of a number and infinity it is infinity on all."""
    largest = largest_value(x)
    return torch.where(torch.isfinite(largest), largest, torch.inf)


def largest_value(x: Tensor) -> Tensor:
    """Return the largest absolute value, an FP32 scalar; zero of a tensor without values."""
    if x.numel() == 0:
        return torch.zeros((), device=x.device)
    if x.is_cuda:  # one kernel instead of four; on a CPU it takes thirty times as long as the following
        largest: Tensor = torch.linalg.vector_norm(x, float("inf"), dtype=torch.float32)
        return largest
    low, high = x.aminmax()
    return torch.maximum(-low, high).float()


def scale_for(largest: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the largest powers of two that keep ``largest``, times them, within the range of ``dtype``, and their
    reciprocals. They are made of bits, so that no kernel's division rounds them.

    NaN for a value that is not finite: E4M3 has no infinity, and a cast to it would make a finite number of one. All
    products of such a tensor are NaN, and the check of the gradient's norm sees them.
    """
    top = math.frexp(torch.finfo(dtype).max)[1] - 1
    bits = largest.clamp(min=SMALLEST).view(torch.int32) + BELOW_TOP_MANTISSA
    exponent = 2 * EXPONENT_BIAS + top - (bits >> EXPONENT_SHIFT)
    not_finite = largest - largest  # infinity less infinity is NaN
    scale, reciprocal = (
        (power << EXPONENT_SHIFT).view(torch.float32) + not_finite for power in (exponent, 2 * EXPONENT_BIAS - exponent)
    )
    return scale, reciprocal


@fused(1)
def scaled_rows(x_TF: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``x_TF`` times ``scale`` in ``dtype``."""
    return _scaled(x_TF, scale, dtype)


@fused(1.67)
def scaled_transpose(x_TF: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the transpose of ``x_TF`` times ``scale``, [F, T] in ``dtype``."""
    return _transposed(_scaled(x_TF, scale, dtype))


@fused(1.25)
def scaled_rows_and_transpose(x_TF: Tensor, scale: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return ``x_TF`` times ``scale`` in ``dtype``, and the transpose of that."""
    rows = _scaled(x_TF, scale, dtype)
    return rows, _transposed(rows)


@fused(1)
def transpose_of(rows: Tensor) -> Tensor:
    """Return the transpose of FP8 numbers as a tensor of its own."""
    return _transposed(rows)


@fused(2, changes=(0,), overwrites=True)
def put_terms(sums: Tensor, *terms: Tensor) -> None:
    """Set ``sums``, FP32, to the sum of ``terms``, from the first to the last."""
    torch.mul(terms[0], 1, out=sums)
    for term in terms[1:]:
        sums.add_(term)


@fused(1.67, changes=(0,))
def add_terms(sums: Tensor, *terms: Tensor) -> None:
    """Add ``terms`` to ``sums``, FP32, from the first to the last."""
    for term in terms:
        sums.add_(term)


def _scaled(x_TF: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    rows = torch.empty(x_TF.shape, dtype=dtype, device=x_TF.device)
    return torch.mul(x_TF, scale, out=rows)


def _transposed(rows: Tensor) -> Tensor:
    """Bytes are moved as bytes."""
    return rows.view(torch.uint8).t().clone(memory_format=torch.contiguous_format).view(rows.dtype)
