"""Causal attention and its backward pass as two plain calls, and the kernel for each device.

    BF16 on a GPU       cuDNN's where it runs (Hopper and newer: the fastest), else FlashAttention; with
                        torch.use_deterministic_algorithms FlashAttention, whose backward pass can repeat to the bit
    FP32 on a GPU       the memory-efficient kernel
    a CPU               PyTorch's flash attention

A trial with one sample and one head shows once which kernel runs for a shape. Before a run, attention_proof.py shows
whether its numbers are right. Tensors are named by their axes: S sequence, B batch, N heads, D head dimension.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.cpu_bf16 import cpu_has_bf16

_aten: Any = torch.ops.aten
SHORT_ON_CPU = 256
"""Tokens."""
KEYS_ON_CPU = 64
"""Keys of a block of the backward pass."""


class Attended(NamedTuple):
    """Attention's output, and the kernel's values for its backward pass."""

    out_BNSD: Tensor
    statistics: tuple[Any, ...]
    """Log-sum-exp of the logits and, for some kernels, lengths and random state, in the kernel's own order."""


@dataclass(frozen=True)
class CpuFlash:
    """PyTorch's flash attention on a CPU.

    BF16 is computed in FP32 where that is faster: for short sequences (1.3 to 2.6 times as fast with up to 256 tokens,
    0.8 times with 512), and on CPUs without BF16 instructions. The backward pass of longer sequences is our own.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        out, *statistics = _aten._scaled_dot_product_flash_attention_for_cpu(*self._wide(q, k, v), 0.0, True)
        return Attended(out.to(q.dtype), tuple(statistics))

    def backward(self, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended) -> Sequence[Tensor]:
        if q.shape[2] > SHORT_ON_CPU and not self._widens(q) and q.shape == k.shape:
            return backward_by_keys(gradient, q, k, v, attended)
        wide = self._wide(gradient, q, k, v, attended.out_BNSD)
        gradients: Sequence[Tensor] = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *wide, *attended.statistics, 0.0, True
        )
        return [gradient.to(q.dtype) for gradient in gradients]

    def _wide(self, *tensors: Tensor) -> Sequence[Tensor]:
        return [tensor.float() for tensor in tensors] if self._widens(tensors[0]) else tensors

    @staticmethod
    def _widens(q: Tensor) -> bool:
        return q.dtype == torch.bfloat16 and (q.shape[2] <= SHORT_ON_CPU or not cpu_has_bf16())


def backward_by_keys(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended) -> Sequence[Tensor]:
    """Return the gradients of queries, keys and values on a CPU, from 64 keys of all heads at a time.

    PyTorch's kernel makes small products, for each head and block of queries. Products for all heads together take 0.7
    of its time in BF16 with 384 or 512 tokens, and the same with 1,024. As that kernel does, they make probabilities
    and the gradients of BF16 logits in FP32, and round them to BF16 for the products that follow.
    """
    (logsumexp_BNS,), scale = attended.statistics, q.shape[3] ** -0.5
    rows_q, rows_k, rows_v, rows_gradient = (x.flatten(0, 1) for x in (q, k, v, gradient))
    dtype = torch.promote_types(q.dtype, torch.float32)
    wide_q, wide_k, wide_v, wide_gradient = (x.to(dtype) for x in (rows_q, rows_k, rows_v, rows_gradient))
    logsumexp = logsumexp_BNS.flatten(0, 1).unsqueeze(2)
    # of each query: the mean of its probabilities' gradients
    mean = (wide_gradient * attended.out_BNSD.flatten(0, 1)).sum(2, keepdim=True)
    of_q, of_k, of_v = torch.zeros_like(wide_q), torch.empty_like(rows_k), torch.empty_like(rows_v)
    is_later = torch.ones(KEYS_ON_CPU, KEYS_ON_CPU, dtype=torch.bool).triu(1)
    for first in range(0, q.shape[2], KEYS_ON_CPU):
        keys, queries = slice(first, first + KEYS_ON_CPU), slice(first, None)
        keys_t, values_t = wide_k[:, keys].transpose(1, 2), wide_v[:, keys].transpose(1, 2)
        logits = torch.baddbmm(logsumexp[:, queries], wide_q[:, queries], keys_t, beta=-1, alpha=scale)
        probabilities, size = logits.exp_(), logits.shape[2]
        probabilities[:, :size].masked_fill_(is_later[:size, :size], 0)
        of_logits = torch.baddbmm(mean[:, queries], wide_gradient[:, queries], values_t, beta=-scale, alpha=scale)
        of_logits = of_logits.mul_(probabilities).to(q.dtype)
        of_v[:, keys] = torch.bmm(probabilities.to(q.dtype).transpose(1, 2), rows_gradient[:, queries])
        of_k[:, keys] = torch.bmm(of_logits.transpose(1, 2), rows_q[:, queries])
        of_q[:, queries] += torch.bmm(of_logits, rows_k[:, keys])
    return [rows.to(q.dtype).view(q.shape) for rows in (of_q, of_k, of_v)]


@dataclass(frozen=True)
class Flash:
    """FlashAttention, as PyTorch has it."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        out, *statistics = _aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)
        return Attended(out, tuple(statistics[:7]))

    def backward(self, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended) -> Sequence[Tensor]:
        logsumexp, cum_q, cum_k, max_q, max_k, seed, offset = attended.statistics
        gradients: Sequence[Tensor] = _aten._scaled_dot_product_flash_attention_backward(
            gradient, q, k, v, attended.out_BNSD, logsumexp, cum_q, cum_k, max_q, max_k, 0.0, True, seed, offset
        )
        return gradients


@dataclass(frozen=True)
class CudnnFlash:
    """cuDNN's attention."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        out, *statistics = _aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)
        return Attended(out, tuple(statistics[:7]))

    def backward(self, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended) -> Sequence[Tensor]:
        logsumexp, cum_q, cum_k, max_q, max_k, seed, offset = attended.statistics
        gradients: Sequence[Tensor] = _aten._scaled_dot_product_cudnn_attention_backward(
            gradient, q, k, v, attended.out_BNSD, logsumexp, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, True
        )
        return gradients


@dataclass(frozen=True)
class MemoryEfficient:
    """The memory-efficient kernel, which takes FP32, and as many heads of keys as of queries."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        out, *statistics = _aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, True)
        return Attended(out, tuple(statistics))

    def backward(self, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended) -> Sequence[Tensor]:
        of_q_k_v_bias = [True, True, True, False]
        gradients: Sequence[Tensor] = _aten._scaled_dot_product_efficient_attention_backward(
            gradient, q, k, v, None, attended.out_BNSD, *attended.statistics, 0.0, of_q_k_v_bias, True
        )
        return gradients[:3]


PlainKernel = CpuFlash | Flash | CudnnFlash | MemoryEfficient


@dataclass(frozen=True)
class Repeated:
    """A kernel with as many heads of keys and values as of queries: shared heads are repeated for it."""

    kernel: PlainKernel

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        k, v = self._for_every_head(q, k, v)
        return self.kernel.forward(q, k, v)

    def backward(self, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Attended) -> Sequence[Tensor]:
        all_k, all_v = self._for_every_head(q, k, v)
        of_q, *of_heads = self.kernel.backward(gradient, q, all_k, all_v, attended)
        batch, shared, sequence, size = k.shape
        of_k, of_v = (of_head.reshape(batch, shared, -1, sequence, size).sum(2) for of_head in of_heads)
        return of_q, of_k, of_v

    @staticmethod
    def _for_every_head(q: Tensor, *shared_heads: Tensor) -> Sequence[Tensor]:
        return [shared.repeat_interleave(q.shape[1] // shared.shape[1], dim=1) for shared in shared_heads]


Kernel = PlainKernel | Repeated


def kernel_name(kernel: Kernel) -> str:
    if isinstance(kernel, Repeated):
        return f"{kernel_name(kernel.kernel)} with repeated keys"
    return type(kernel).__name__


@dataclass(frozen=True)
class Heads:
    """Attention over one micro-batch, and the tensors for its backward pass. Queries, keys and values are views of
    ``qkv`` [S, B, N, 3, D]."""

    qkv: Tensor
    attended: Attended
    kernel: Kernel

    def out(self) -> Tensor:
        """[S x B, N x D]"""
        return as_rows(self.attended.out_BNSD)

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of queries, keys and values, [S x B, N x 3 x D]. ``gradient``: of :meth:`out`."""
        sequence, batch, heads, _, size = self.qkv.shape
        gradient_BNSD = gradient.view(sequence, batch, heads, size).permute(1, 2, 0, 3)
        parts = self.kernel.backward(gradient_BNSD, *_queries_keys_values(self.qkv), self.attended)
        stacked = torch.stack([part.permute(2, 0, 1, 3) for part in parts], dim=3)
        return stacked.view(sequence * batch, heads * 3 * size)


class AttentionLayout(NamedTuple):
    """The columns of a block's queries, keys and values in one matrix, and the function that attends to them, for one
    rank and micro-batch."""

    split: Callable[[Tensor], Sequence[Tensor]]
    """Views of the queries, of the keys and of the values of such a matrix."""
    attend: Callable[..., Any]
    """Attention over such a matrix, by ``kernel`` or the chosen one: :class:`Heads` for GPT-3."""


def attend(qkv: Tensor, batch: int, heads: int, kernel: Kernel | None = None) -> Heads:
    """Causal attention over whole windows, by ``kernel`` or the chosen one. ``qkv``: [S x batch, N x 3 x D]."""
    parts = qkv.view(qkv.shape[0] // batch, batch, heads, 3, -1)
    q_BNSD, k_BNSD, v_BNSD = _queries_keys_values(parts)
    kernel = kernel or kernel_for(q_BNSD, k_BNSD)
    return Heads(parts, kernel.forward(q_BNSD, k_BNSD, v_BNSD), kernel)


def kernel_for(q_BNSD: Tensor, k_BKSD: Tensor) -> Kernel:
    """Return the chosen kernel for attention of these queries to these keys."""
    deterministic, sharers = torch.are_deterministic_algorithms_enabled(), q_BNSD.shape[1] // k_BKSD.shape[1]
    return choose_kernel(q_BNSD.device.type, q_BNSD.dtype, *q_BNSD.shape[2:], deterministic, sharers)


_refused: set[Kernel] = set()


def refuse_kernel(kernel: Kernel) -> None:
    """Do not choose ``kernel`` in this process from now on."""
    _refused.add(kernel)
    choose_kernel.cache_clear()


@cache
def choose_kernel(
    device: str, dtype: torch.dtype, sequence: int, size: int, deterministic: bool, sharers: int = 1
) -> Kernel:
    """Return the first kernel of the module's table that runs, forward and backward, in this process. ``sharers``:
    heads of queries that share one of keys and values.

    If none runs, the last kernel is returned, which raises its own RuntimeError when it is called. Raises RuntimeError
    if all kernels were refused.
    """
    candidates = [kernel for kernel in _in_order(device, dtype, deterministic, sharers) if kernel not in _refused]
    if not candidates:
        raise RuntimeError(f"attention: every kernel for {dtype} on this device gave wrong numbers")
    for kernel in candidates[:-1]:
        try:
            heads_BnSD = torch.zeros(sequence, 1, sharers + 2, size, dtype=dtype, device=device).permute(1, 2, 0, 3)
            q_BNSD, k_B1SD, v_B1SD = torch.split(heads_BnSD, [sharers, 1, 1], dim=1)
            attended = kernel.forward(q_BNSD, k_B1SD, v_B1SD)
            kernel.backward(attended.out_BNSD, q_BNSD, k_B1SD, v_B1SD, attended)
            return kernel
        except RuntimeError:  # not for this device, shape or build
            continue
    return candidates[-1]


def _in_order(device: str, dtype: torch.dtype, deterministic: bool, sharers: int) -> list[Kernel]:
    """Where heads of keys are shared, each kernel is tried with them as they are, and then with repeated ones."""
    kernels: list[PlainKernel]
    if device == "cpu":
        kernels = [CpuFlash()]
    elif dtype != torch.bfloat16:
        return [MemoryEfficient() if sharers == 1 else Repeated(MemoryEfficient())]
    else:
        kernels = [Flash()] if deterministic else [CudnnFlash(), Flash()]
    if sharers == 1:
        return [*kernels]
    return [candidate for kernel in kernels for candidate in (kernel, Repeated(kernel))]


def _queries_keys_values(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q_BNSD, k_BNSD, v_BNSD = qkv.permute(3, 1, 2, 0, 4)
    return q_BNSD, k_BNSD, v_BNSD


def as_rows(out_BNSD: Tensor) -> Tensor:
    """[S x B, N x D]"""
    return out_BNSD.permute(2, 0, 1, 3).flatten(2).flatten(0, 1)
