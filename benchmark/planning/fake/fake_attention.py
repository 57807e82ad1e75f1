"""Which attention kernel PyTorch would take on a GPU, for it asks the device, and there is none.

Assumed, as in PyTorch 2.11 to 2.13 (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp): for 16-bit numbers cuDNN's
on compute capability 9.0 and 10.0 (with the cuDNN 9.15 or newer of its wheels), FlashAttention from 8.0 on; for others
the memory-efficient one. What ``torch.nn.attention.sdpa_kernel`` forbids is left out, and so is cuDNN's under
``torch.use_deterministic_algorithms``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_aten: Any = torch.ops.aten
Capability = tuple[int, int]

PREFER_CUDNN = ((9, 0), (10, 0))
LOW_PRECISION = (torch.bfloat16, torch.float16)
ALLOWED: dict[str, Callable[[], bool]] = {
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
}
"""In the order in which PyTorch tries them: what ``torch.nn.attention.sdpa_kernel`` leaves."""
LARGEST_HEAD = {"cudnn": 128, "flash": 256}


def kernel_on(capability: Capability, dtype: torch.dtype, head_size: int) -> str:
    """``cudnn``, ``flash`` or ``efficient``. Raises RuntimeError where only unfused attention is left."""
    low = dtype in LOW_PRECISION and head_size % 8 == 0
    cudnn = capability in PREFER_CUDNN and not torch.are_deterministic_algorithms_enabled()
    fits = {
        "cudnn": low and cudnn and head_size <= LARGEST_HEAD["cudnn"],
        "flash": low and capability >= (8, 0) and head_size <= LARGEST_HEAD["flash"],
        "efficient": True,
    }
    for kernel, allowed in ALLOWED.items():
        if fits[kernel] and allowed():
            return kernel
    raise RuntimeError(f"no fused attention for {dtype} and heads of {head_size} on compute capability {capability}")


def attention_as_on(
    capability: Capability,
    query_BNSD: Tensor,
    key_BNSD: Tensor,
    value_BNSD: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``F.scaled_dot_product_attention`` by the kernel of the device, [B, N, S, D], without a mask."""
    assert attn_mask is None and not enable_gqa, "the model has neither"
    kernel = kernel_on(capability, query_BNSD.dtype, query_BNSD.shape[-1])
    out: Tensor = KERNELS[kernel](query_BNSD, key_BNSD, value_BNSD, dropout_p, is_causal, scale)[0]
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "cudnn": lambda q, k, v, dropout, causal, scale: _aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, _keeps(q, k, v), dropout, causal, False, scale=scale
    ),
    "flash": lambda q, k, v, dropout, causal, scale: _aten._scaled_dot_product_flash_attention(
        q, k, v, dropout, causal, False, scale=scale
    ),
    "efficient": lambda q, k, v, dropout, causal, scale: _aten._scaled_dot_product_efficient_attention(
        q, k, v, None, _keeps(q, k, v), dropout, causal, scale=scale
    ),
}


def _keeps(*inputs: Tensor) -> bool:
    """Whether the logarithms of the sums are kept for a backward pass."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
