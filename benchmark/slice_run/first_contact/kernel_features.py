"""What a step computes with, kernel by kernel, each held against the same in FP64 on the CPU.

A function tries one kernel on a device and returns what it found, in words; it raises :class:`FeatureWrong` where the
numbers are off, and whatever PyTorch raises where the kernel does not run.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from model.kernels import (
    LAYER_NORM_EPSILON,
    adam,
    add_product,
    apex_adam,
    gelu,
    gelu_backward,
    layer_norm_backward,
    layer_norm_forward,
    put_product,
)
from model.losses import softmax_gradient, softmax_losses
from model.passes.attention import CpuFlash, CudnnFlash, Flash, Heads, Kernel, MemoryEfficient, choose_kernel

BF16, FP32 = torch.bfloat16, torch.float32
ROUNDED = {BF16: 2e-2, FP32: 1e-4}
"""Largest error of a result, relative in the L2 norm: results are rounded once or twice, sums are in FP32."""
EXACT = 1e-5
"""Of FP32 arithmetic."""
SUMMED = 1e-4
"""Of BF16 products summed in FP32, which tensor cores truncate; rounding to BF16 makes 2e-3 of it."""
SEQUENCE, HEADS, SIZE = 2048, 2, 128
"""Of attention: the benchmark's sequence and size of a head."""


class FeatureWrong(Exception):
    """A kernel runs, and its numbers are wrong."""


def numbers(*shape: int, dtype: torch.dtype = FP32, seed: int = 1) -> Tensor:
    """At random, on the CPU."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def error_of(found: Tensor, due: Tensor) -> float:
    """Relative, in the L2 norm; not a number where ``found`` holds any."""
    wide = due.double()
    return float((found.cpu().double() - wide).norm() / wide.norm())


def require_close(what: str, found: Tensor, due: Tensor, most: float) -> str:
    """Raise :class:`FeatureWrong` where ``found`` is off by more than ``most``."""
    error = error_of(found, due)
    if not error <= most:
        raise FeatureWrong(f"{what}: relative error {error:.2g}, where at most {most:.2g} is due")
    return f"{what} {error:.1g}"


def products(device: torch.device) -> str:
    """Forward with bias, and the gradient of the input."""
    x, weight, bias = (
        one.to(device) for one in (numbers(256, 512, dtype=BF16), numbers(384, 512, dtype=BF16), numbers(384).to(BF16))
    )
    wide = [one.double().cpu() for one in (x, weight, bias)]
    said = require_close("with bias", torch.addmm(bias, x, weight.t()), wide[0] @ wide[1].t() + wide[2], ROUNDED[BF16])
    gradient = numbers(256, 384, dtype=BF16, seed=2)
    due = gradient.double() @ wide[1]
    return f"errors: {said}, {require_close('without', torch.mm(gradient.to(device), weight), due, ROUNDED[BF16])}"


def weight_gradients(device: torch.device) -> str:
    """BF16 products summed in FP32 by the product itself; a CPU rounds them first."""
    most = SUMMED if device.type == "cuda" else ROUNDED[BF16]
    left, right = numbers(512, 192, dtype=BF16), numbers(512, 256, dtype=BF16, seed=2)
    sums = torch.full((192, 256), torch.nan, device=device)
    put_product(sums, left.to(device), right.to(device))
    due = left.double().t() @ right.double()
    first = require_close("put", sums, due, most)
    add_product(sums, left.to(device), right.to(device))
    return f"errors: {first}, {require_close('added', sums, 2 * due, most)}"


def layer_norms(device: torch.device) -> str:
    x, gain, bias = numbers(64, 12288, dtype=BF16), numbers(12288, dtype=BF16, seed=2), numbers(12288).to(BF16)
    gradient = numbers(64, 12288, dtype=BF16, seed=3)
    on = [one.to(device) for one in (x, gain, bias, gradient)]
    out, state = layer_norm_forward(*on[:3])
    wide = [one.double().requires_grad_() for one in (x, gain, bias)]
    due = F.layer_norm(wide[0], (12288,), wide[1], wide[2], LAYER_NORM_EPSILON)
    due.backward(gradient.double())  # type: ignore[no-untyped-call]
    said = [require_close("forward", out, due.detach(), ROUNDED[BF16])]
    found = layer_norm_backward(on[3], on[0], state, on[1], on[2])
    for name, one, leaf in zip(("input", "gain", "bias"), found, wide, strict=True):
        said.append(require_close(name, one, _gradient(leaf), ROUNDED[BF16]))
    return "errors: " + ", ".join(said)


def gelus(device: torch.device) -> str:
    x, gradient = numbers(64, 4096, dtype=BF16), numbers(64, 4096, dtype=BF16, seed=2)
    wide = x.double().requires_grad_()
    due = F.gelu(wide, approximate="tanh")
    due.backward(gradient.double())  # type: ignore[no-untyped-call]
    forward = require_close("forward", gelu(x.to(device)), due.detach(), ROUNDED[BF16])
    backward = gelu_backward(gradient.to(device), x.to(device))
    return f"errors: {forward}, {require_close('backward', backward, _gradient(wide), ROUNDED[BF16])}"


def attention(kernel: Callable[[], Kernel], dtype: torch.dtype, device: torch.device) -> str:
    """Forward and backward, by one kernel."""
    qkv = numbers(SEQUENCE, 1, HEADS, 3, SIZE, dtype=dtype)
    gradient = numbers(SEQUENCE, HEADS * SIZE, dtype=dtype, seed=2)
    wide = qkv.double().requires_grad_()
    q, k, v = wide.permute(3, 1, 2, 0, 4)
    due = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    due_rows = due.permute(2, 0, 1, 3).reshape(SEQUENCE, -1)
    due_rows.backward(gradient.double())  # type: ignore[no-untyped-call]
    on, chosen = qkv.to(device), kernel() if device.type == "cuda" else CpuFlash()
    heads = Heads(on, chosen.forward(*on.permute(3, 1, 2, 0, 4)), chosen)
    forward = require_close("forward", heads.out(), due_rows.detach(), ROUNDED[dtype])
    backward = heads.backward(gradient.to(device))
    return f"errors: {forward}, {require_close('backward', backward, _gradient(wide).flatten(1), ROUNDED[dtype])}"


cudnn_attention = partial(attention, CudnnFlash, BF16)
flash_attention = partial(attention, Flash, BF16)
efficient_attention = partial(attention, MemoryEfficient, FP32)


def chosen_attention(device: torch.device) -> str:
    """Which kernels a run takes."""
    kinds = [
        f"{name} {type(choose_kernel(device.type, dtype, SEQUENCE, SIZE, deterministic)).__name__}"
        for name, dtype, deterministic in (("BF16", BF16, False), ("deterministic", BF16, True), ("FP32", FP32, False))
    ]
    return ", ".join(kinds)


def losses(device: torch.device) -> str:
    logits, labels = numbers(64, 51200, dtype=BF16), torch.arange(64) * 797
    weights = torch.full((64,), 1 / 64)
    wide = logits.double().requires_grad_()
    due = F.cross_entropy(wide, labels, reduction="none")
    (due * weights).sum().backward()  # type: ignore[no-untyped-call]
    found, softmax = softmax_losses(logits.to(device), labels.to(device), None)
    forward = require_close("losses", found, due.detach(), ROUNDED[FP32])
    gradient = softmax_gradient(softmax, weights.to(device))
    return f"errors: {forward}, {require_close('gradient', gradient, _gradient(wide), ROUNDED[BF16])}"


def embeddings(device: torch.device) -> str:
    table, rows = numbers(1000, 512, dtype=BF16), torch.arange(4096) * 7 % 1000
    if not torch.equal(F.embedding(rows.to(device), table.to(device)).cpu(), table[rows]):
        raise FeatureWrong("rows of a table are not what lies there")
    terms = numbers(4096, 512)
    sums = torch.zeros(1000, 512, device=device).index_add_(0, rows.to(device), terms.to(device))
    due = torch.zeros(1000, 512, dtype=torch.float64).index_add_(0, rows, terms.double())
    return f"errors: {require_close('sums', sums, due, EXACT)}"


def adams(device: torch.device) -> str:
    """Three updates, against AdamW written out."""
    weight, gradient = numbers(100_000), numbers(100_000, seed=2) * 1e-3
    rate, beta1, beta2, epsilon, decay = 1e-2, 0.9, 0.95, 1e-8, 0.1
    on = weight.clone().to(device)
    optimizer = adam([on], lr=rate, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)
    due, first, second = weight.double(), torch.zeros(100_000).double(), torch.zeros(100_000).double()
    for step in range(1, 4):
        on.grad = (gradient * step).to(device)
        optimizer.step()
        wide = gradient.double() * step
        first, second = beta1 * first + (1 - beta1) * wide, beta2 * second + (1 - beta2) * wide**2
        moved = first / (1 - beta1**step) / ((second / (1 - beta2**step)).sqrt() + epsilon)
        due = due * (1 - rate * decay) - rate * moved
    by = "apex" if device.type == "cuda" and apex_adam() is not None else "PyTorch"
    return f"{by}'s; errors: {require_close('weights', on, due, EXACT)}"


def gradient_norms(device: torch.device) -> str:
    tensors = [numbers(1_000_003), numbers(17, seed=2)]
    found = torch.stack(torch._foreach_norm([one.to(device) for one in tensors], 2, torch.float64)).square().sum()
    due = torch.stack([one.double().square().sum() for one in tensors]).sum()
    return f"errors: {require_close('sum of squares', found, due, 1e-12)}"


def _gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad
