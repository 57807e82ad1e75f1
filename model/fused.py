"""Which kernels compute LayerNorm and Adam: NVIDIA apex's where they are importable (NGC containers), else PyTorch's.

Both compute in FP32 and round once; only the order of sums differs. PyPI's package of the name "apex" is another one
and has neither.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """LayerNorm over the last axis. torch.compile makes its own kernel of PyTorch's."""
    apex = apex_layer_norm() if x.is_cuda and not torch.compiler.is_compiling() else None
    if apex is not None:
        return apex(x, gain, bias, gain.shape, epsilon)
    return F.layer_norm(x, gain.shape, gain, bias, epsilon)


def adam(shards: list[Tensor], **options: Any) -> torch.optim.Optimizer:
    """AdamW on FP32 tensors. ``options``: lr, betas, eps, weight_decay."""
    apex = apex_adam() if shards[0].is_cuda else None
    if apex is not None:
        return apex(shards, adam_w_mode=True, bias_correction=True, **options)
    return torch.optim.AdamW(shards, fused=True, **options)


@cache
def apex_layer_norm() -> Callable[..., Tensor] | None:
    """``fused_layer_norm_affine(x, weight, bias, shape, epsilon)``, None where there is no NVIDIA apex."""
    try:
        from apex.normalization.fused_layer_norm import fused_layer_norm_affine
    except ImportError:
        return None
    return fused_layer_norm_affine  # type: ignore[no-any-return]


@cache
def apex_adam() -> Callable[..., torch.optim.Optimizer] | None:
    """``FusedAdam``, None where there is no NVIDIA apex."""
    try:
        from apex.optimizers import FusedAdam
    except ImportError:
        return None
    return FusedAdam  # type: ignore[no-any-return]
