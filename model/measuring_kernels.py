"""Kernels of activation functions, norms and the rotary embedding that also return the largest absolute value of each
row of their tensor, FP32: a cast of that to FP8 does not read it twice.

Their tensors are those of the functions in kernels.py and rotary_kernel.py. No kernel reads its tensor again on a GPU
(fused_kernel.py).
"""

import torch
from torch import Tensor

from model.fused_kernel import fused
from model.kernels import (
    add_and_rms_norm,
    gelu,
    gelu_backward,
    read_for_gain,
    rms_norm_backward_and_add,
    rms_norm_forward,
    swiglu,
    swiglu_gradients,
)
from model.rotary_kernel import rotated


def largest_of_rows(x: Tensor, axes: int = 1) -> Tensor:
    """Return the largest absolute values over the last ``axes`` axes, FP32; NaN where one is NaN."""
    over = tuple(range(-axes, 0))
    if x.is_cuda:  # one operator instead of two
        largest: Tensor = torch.linalg.vector_norm(x, float("inf"), dim=over, dtype=torch.float32)
        return largest
    return x.abs().amax(over).float()


@fused(1.5)
def gelu_and_largest(x_TF: Tensor) -> tuple[Tensor, Tensor]:
    out_TF = gelu(x_TF)
    return out_TF, largest_of_rows(out_TF)


@fused(1.33)
def gelu_backward_and_largest(gradient_TF: Tensor, x_TF: Tensor) -> tuple[Tensor, Tensor]:
    of_input_TF = gelu_backward(gradient_TF, x_TF)
    return of_input_TF, largest_of_rows(of_input_TF)


@fused(2)
def swiglu_and_largest(x_T2F: Tensor) -> tuple[Tensor, Tensor]:
    out_TF = swiglu.function(x_T2F)
    return out_TF, largest_of_rows(out_TF)


@fused(3.4)
def swiglu_backward_and_largest(gradient_TF: Tensor, x_T2F: Tensor) -> tuple[Tensor, Tensor]:
    """Values are compared before the halves are put together: a kernel that compares them afterwards reads them."""
    halves = swiglu_gradients(gradient_TF, x_T2F)
    largest_T = torch.maximum(*(largest_of_rows(half) for half in halves))
    return torch.cat(halves, dim=1), largest_T


@fused(1.5)
def rms_norm_and_largest(x_tH: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the norm, the reciprocal root mean square of the rows, and the norm's largest values."""
    normed_tH, (reciprocal,) = rms_norm_forward(x_tH, gain)
    return normed_tH, reciprocal, largest_of_rows(normed_tH)


@fused(1.5)
def add_and_rms_norm_and_largest(x_tH: Tensor, terms_tH: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the sum, its norm, the reciprocal root mean square of the rows, and the norm's largest values."""
    sum_tH, normed_tH, reciprocal = add_and_rms_norm.function(x_tH, terms_tH, gain)
    return sum_tH, normed_tH, reciprocal, largest_of_rows(normed_tH)


@fused(1.75, reads_again=read_for_gain)
def rms_norm_backward_and_add_and_largest(
    gradient_tH: Tensor, x_tH: Tensor, reciprocal: Tensor, gain: Tensor, residual_tH: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of RMSNorm's input plus ``residual_tH`` and of the gain, and the former's largest values."""
    of_input_tH, of_gain = rms_norm_backward_and_add.function(gradient_tH, x_tH, reciprocal, gain, residual_tH)
    return of_input_tH, of_gain, largest_of_rows(of_input_tH)


@fused(8.4)
def rotated_back_and_largest(
    q_SBND: Tensor, k_SBKD: Tensor, v_SBKD: Tensor, cosine_S111d: Tensor, sine_S112d: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradient of queries, keys and values side by side as ``with_rotated_heads`` does, and its largest
    values."""
    q_SBND, k_SBKD = (rotated(x, cosine_S111d, sine_S112d, backwards=True) for x in (q_SBND, k_SBKD))
    parts = q_SBND, k_SBKD, v_SBKD
    of_q, of_k, of_v = (largest_of_rows(part, axes=2) for part in parts)
    return torch.cat(parts, dim=2), torch.maximum(torch.maximum(of_q, of_k), of_v).flatten()
