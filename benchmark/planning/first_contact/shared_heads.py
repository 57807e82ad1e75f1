"""Try attention with fewer heads of keys and values than of queries, in Llama 3.1's layout: its error beside FP64, and
its time beside that with keys repeated for every head."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.config.benchmarks import LLAMA31_8B
from benchmark.planning.slice.device_rates import seconds_per_call
from foundation.errors import CheckFailed
from model.passes.attention import CpuFlash, CudnnFlash, Flash, Kernel, Repeated, kernel_name

KERNELS: dict[str, tuple[Kernel, ...]] = {
    "cuda": (CudnnFlash(), Repeated(CudnnFlash()), Flash()),
    "cpu": (CpuFlash(), Repeated(CpuFlash())),
}
SEQUENCE = {"cuda": LLAMA31_8B.model.seq_length, "cpu": 512}
SHARED, SHARERS = 8, 4
"""Heads of keys, and heads of queries for each of them."""
COMPARED = 2
"""Heads of keys in the comparison: FP64 keeps all logits."""
LARGEST_ERROR = 2e-2


def shared_heads(device: torch.device) -> str:
    """Try the kernels that a run may choose. Raises CheckFailed for wrong numbers, or PyTorch's exception."""
    return "; ".join(_tried(kernel, device) for kernel in KERNELS[device.type])


def _tried(kernel: Kernel, device: torch.device) -> str:
    inputs = _heads(COMPARED, device)
    gradient = torch.randn_like(inputs[0])
    attended = kernel.forward(*inputs)
    results = [attended.out_BNSD, *kernel.backward(gradient, *inputs, attended)]
    exact = _exact(inputs, gradient)
    errors = [float((ours.double() - of.double()).norm() / of.norm()) for ours, of in zip(results, exact, strict=True)]
    name = kernel_name(kernel)
    if not all(error <= LARGEST_ERROR for error in errors):
        listed = ", ".join(f"{error:.2g}" for error in errors)
        raise CheckFailed(f"{name}: relative errors {listed}, expected at most {LARGEST_ERROR:.2g}")
    inputs = _heads(SHARED, device)
    attended = kernel.forward(*inputs)
    calls = partial(kernel.forward, *inputs), partial(kernel.backward, attended.out_BNSD, *inputs, attended)
    forward_ms, backward_ms = (1000 * seconds_per_call(device, call) for call in calls)
    return f"{name}: errors up to {max(errors):.1g}, {forward_ms:.3g} ms forward, {backward_ms:.3g} ms backward"


def _heads(shared: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return views of queries, keys and values side by side, [1, heads, S, D], as the passes have them."""
    counts = [SHARERS * shared, shared, shared]
    qkv = torch.randn(
        SEQUENCE[device.type], 1, sum(counts), LLAMA31_8B.model.head_size, device=device, dtype=torch.bfloat16
    )
    query, key, value = torch.split(qkv.permute(1, 2, 0, 3), counts, dim=1)
    return query, key, value


def _exact(inputs: Sequence[Tensor], gradient: Tensor) -> Sequence[Tensor]:
    """Return the output and the gradients of the inputs in FP64."""
    wide = [tensor.double().requires_grad_() for tensor in inputs]
    query, key, value = wide
    out: Tensor = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return [out.detach(), *torch.autograd.grad(out, wide, gradient.double())]
