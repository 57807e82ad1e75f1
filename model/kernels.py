"""The kernels that compute norms, activations, weight gradients and Adam. Attention's kernels: attention.py.

Adam alone is NVIDIA apex's, on a GPU where apex is importable with its CUDA parts (NGC containers); elsewhere it is
PyTorch's fused one. Both compute in FP32. PyPI's package "apex" is another project and has no Adam.
"""

import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from model.fused_kernel import fused

LAYER_NORM_EPSILON = 1e-5
RMS_NORM_EPSILON = 1e-5
_aten: Any = torch.ops.aten


NormState = tuple[Tensor, ...]
"""A norm's statistics of each row, FP32: LayerNorm's mean and reciprocal standard deviation, RMSNorm's reciprocal
root mean square."""


def layer_norm_forward(x_TH: Tensor, gain: Tensor, bias: Tensor) -> tuple[Tensor, NormState]:
    """Return LayerNorm over the last axis, and the state for its backward pass."""
    if not x_TH.is_cuda:  # with a BF16 gain PyTorch rounds the statistics of BF16 rows to BF16 there
        gain, bias = _wide(gain), _wide(bias)
    out, mean, deviation = torch.native_layer_norm(x_TH, gain.shape, gain, bias, LAYER_NORM_EPSILON)
    return out, (mean, deviation)


def layer_norm_backward(
    gradient_TH: Tensor, x_TH: Tensor, state: NormState, gain: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of input, gain and bias."""
    inputs = [gradient_TH, x_TH, gain, bias]
    if not x_TH.is_cuda:  # PyTorch sums BF16 rows in BF16 there: the sums of 2,048 are off by 5%
        inputs = [_wide(tensor) for tensor in inputs]
    of_output_TH, rows_TH, gain, bias = inputs
    of_input, of_gain, of_bias = _aten.native_layer_norm_backward(
        of_output_TH, rows_TH, gain.shape, *state, gain, bias, [True, True, True]
    )
    return of_input.to(x_TH.dtype), of_gain, of_bias


def _wide(tensor: Tensor) -> Tensor:
    """Return a tensor of FP32, or of FP64 as it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def rms_norm_forward(x_TH: Tensor, gain: Tensor) -> tuple[Tensor, NormState]:
    """Return RMSNorm over the last axis, rounded once to the dtype of ``x_TH``, and the state for its backward pass."""
    if x_TH.is_cuda:
        out, reciprocal = _aten._fused_rms_norm(x_TH, gain.shape, gain, RMS_NORM_EPSILON)
        return out, (reciprocal,)
    wide = _wide(x_TH)
    reciprocal = torch.rsqrt(wide.square().mean(-1, keepdim=True) + RMS_NORM_EPSILON)
    return (wide * reciprocal * gain).to(x_TH.dtype), (reciprocal,)


def rms_norm_backward(gradient_TH: Tensor, x_TH: Tensor, state: NormState, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of input and gain."""
    (reciprocal,) = state
    if x_TH.is_cuda:  # PyTorch has no such kernel for a CPU
        of_input, of_gain = _aten._fused_rms_norm_backward(
            gradient_TH, x_TH, gain.shape, reciprocal, gain, [True, True]
        )
        return of_input, of_gain
    normed, wide_gradient = x_TH * reciprocal, gradient_TH.to(reciprocal.dtype)
    of_normed = wide_gradient * gain
    of_input = reciprocal * (of_normed - normed * (of_normed * normed).mean(-1, keepdim=True))
    return of_input.to(x_TH.dtype), (wide_gradient * normed).sum(0)


@fused(1.25)
def add_and_rms_norm(x_TH: Tensor, terms_TH: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sum of ``x_TH`` and ``terms_TH``, its RMSNorm, and the reciprocal root mean square of its rows."""
    sum_TH = x_TH + terms_TH
    normed_TH, (reciprocal,) = rms_norm_forward(sum_TH, gain)
    return sum_TH, normed_TH, reciprocal


def read_for_gain(gradient_TH: Tensor, x_TH: Tensor, *_: Tensor) -> Sequence[Tensor]:
    """PyTorch's inductor sums over rows and over columns in one kernel if there are twice as many rows as columns."""
    return () if x_TH.shape[0] >= 2 * x_TH.shape[1] else (gradient_TH, x_TH)


@fused(1.5, reads_again=read_for_gain)
def rms_norm_backward_and_add(
    gradient_TH: Tensor, x_TH: Tensor, reciprocal: Tensor, gain: Tensor, residual_TH: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of RMSNorm's input plus ``residual_TH``, and of the gain."""
    of_input_TH, of_gain = rms_norm_backward(gradient_TH, x_TH, (reciprocal,), gain)
    return of_input_TH.add_(residual_TH), of_gain


@fused(1.67)
def swiglu(x_T2F: Tensor) -> Tensor:
    """Return the SwiGLU of rows that hold the gate's columns and, behind them, the columns that the gate multiplies."""
    gate_TF, up_TF = x_T2F.chunk(2, dim=1)
    return F.silu(gate_TF) * up_TF


@fused(3)
def swiglu_backward(gradient_TF: Tensor, x_T2F: Tensor) -> Tensor:
    """Return the gradient of SwiGLU's input ``x_T2F``."""
    return torch.cat(swiglu_gradients(gradient_TF, x_T2F), dim=1)


def swiglu_gradients(gradient_TF: Tensor, x_T2F: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the gate's columns and of those that it multiplies."""
    gate_TF, up_TF = x_T2F.chunk(2, dim=1)
    of_gate_TF: Tensor = _aten.silu_backward(gradient_TF * up_TF, gate_TF)
    return of_gate_TF, gradient_TF * F.silu(gate_TF)


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def gelu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of GELU's input ``x``."""
    of_input: Tensor = _aten.gelu_backward(gradient, x, approximate="tanh")
    return of_input


def put_product(sums: Tensor, left_TF: Tensor, right_TH: Tensor) -> None:
    """Set ``sums`` [F, H], FP32, to left^T right. On a GPU no product is rounded before it is summed."""
    if left_TF.dtype == torch.float32:
        torch.mm(left_TF.t(), right_TH, out=sums)
    elif left_TF.is_cuda:
        torch.mm(left_TF.t(), right_TH, out_dtype=torch.float32, out=sums)
    else:
        sums.copy_(torch.mm(left_TF.t(), right_TH))


def add_product(sums: Tensor, left_TF: Tensor, right_TH: Tensor) -> None:
    """Add left^T right to ``sums`` [F, H], FP32, in the matrix product itself where PyTorch has such a kernel.

    PyTorch has none for BF16 on a CPU: there the product is rounded to BF16 before it is added.
    """
    if left_TF.dtype == torch.float32:
        sums.addmm_(left_TF.t(), right_TH)
    elif left_TF.is_cuda:
        torch.addmm(sums, left_TF.t(), right_TH, out_dtype=torch.float32, out=sums)
    else:
        sums.add_(torch.mm(left_TF.t(), right_TH))


def adam(shards: list[Tensor], **options: Any) -> torch.optim.Optimizer:
    """Return AdamW on FP32 tensors. ``options``: lr, betas, eps, weight_decay."""
    apex = apex_adam() if shards[0].is_cuda else None
    if apex is not None:
        return apex(shards, adam_w_mode=True, bias_correction=True, **options)
    return torch.optim.AdamW(shards, fused=True, **options)


@cache
def apex_adam() -> Callable[..., torch.optim.Optimizer] | None:
    """Return ``FusedAdam``; None without NVIDIA apex."""
    if importlib.util.find_spec("amp_C") is None:  # apex is importable without this CUDA part, and fails when called
        return None
    try:
        from apex.optimizers import FusedAdam
    except ImportError:
        return None
    return FusedAdam  # type: ignore[no-any-return]
