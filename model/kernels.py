"""Which kernels compute LayerNorm, GELU, weight gradients and Adam. Attention's: attention.py.

Adam, and nothing else, is NVIDIA apex's on a GPU where that is importable with its CUDA parts (NGC containers), else
PyTorch's fused one. Both compute in FP32. PyPI's package of the name "apex" is another one and has none.
"""

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LAYER_NORM_EPSILON = 1e-5
_aten: Any = torch.ops.aten


NormState = tuple[Tensor, Tensor]
"""Mean and reciprocal standard deviation of each row, FP32."""


def layer_norm_forward(x_TH: Tensor, gain: Tensor, bias: Tensor) -> tuple[Tensor, NormState]:
    """LayerNorm over the last axis, and what its backward pass needs besides ``x_TH``."""
    out, mean, deviation = torch.native_layer_norm(x_TH, gain.shape, gain, bias, LAYER_NORM_EPSILON)
    return out, (mean, deviation)


def layer_norm_backward(
    gradient_TH: Tensor, x_TH: Tensor, state: NormState, gain: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, gain and bias."""
    found: tuple[Tensor, Tensor, Tensor] = _aten.native_layer_norm_backward(
        gradient_TH, x_TH, gain.shape, *state, gain, bias, [True, True, True]
    )
    return found


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def gelu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    """Gradient of GELU's input ``x``."""
    found: Tensor = _aten.gelu_backward(gradient, x, approximate="tanh")
    return found


def put_product(sums: Tensor, left_TF: Tensor, right_TH: Tensor) -> None:
    """sums [F, H], FP32 = left^T right. On a GPU nothing is rounded between products and sums."""
    if left_TF.dtype == torch.float32:
        torch.mm(left_TF.t(), right_TH, out=sums)
    elif left_TF.is_cuda:
        torch.mm(left_TF.t(), right_TH, out_dtype=torch.float32, out=sums)
    else:
        sums.copy_(torch.mm(left_TF.t(), right_TH))


def add_product(sums: Tensor, left_TF: Tensor, right_TH: Tensor) -> None:
    """sums [F, H], FP32 += left^T right, by the matrix product itself where there is such a kernel.

    PyTorch has none for BF16 on a CPU: there the product is rounded to BF16 before it is added.
    """
    if left_TF.dtype == torch.float32:
        sums.addmm_(left_TF.t(), right_TH)
    elif left_TF.is_cuda:
        torch.addmm(sums, left_TF.t(), right_TH, out_dtype=torch.float32, out=sums)
    else:
        sums.add_(torch.mm(left_TF.t(), right_TH))


def adam(shards: list[Tensor], **options: Any) -> torch.optim.Optimizer:
    """AdamW on FP32 tensors. ``options``: lr, betas, eps, weight_decay."""
    apex = apex_adam() if shards[0].is_cuda else None
    if apex is not None:
        return apex(shards, adam_w_mode=True, bias_correction=True, **options)
    return torch.optim.AdamW(shards, fused=True, **options)


@cache
def apex_adam() -> Callable[..., torch.optim.Optimizer] | None:
    """``FusedAdam``, None where there is no NVIDIA apex."""
    if (
        importlib.util.find_spec("amp_C") is None
    ):  # without this CUDA part, apex is importable and fails when it is made
        return None
    try:
        from apex.optimizers import FusedAdam
    except ImportError:
        return None
    return FusedAdam  # type: ignore[no-any-return]
