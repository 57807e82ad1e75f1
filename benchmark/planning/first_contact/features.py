"""Try each ability that a run needs of a device: the kernels of a step one by one, against the same computation in FP64
on the CPU, and a small training.

python -m benchmark.planning.first_contact.features NAME cuda|cpu

Each ability is tried in a process of its own: a process that crashes, hangs or spoils the device for itself does not
stop the others. The command prints the result; exit status 1 means that the ability does not work, 2 that the device
was not made for it.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.planning.first_contact.fp8_match import fp8_products
from benchmark.planning.first_contact.shared_heads import shared_heads
from benchmark.planning.first_contact.training_match import trained_as_on_a_cpu
from benchmark.training.engine.rank_environment import set_environment
from benchmark.training.machine.run_environment import use_deterministic_kernels
from foundation.errors import CheckFailed, InputError
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
from model.passes.attention import CpuFlash, CudnnFlash, Flash, Kernel, MemoryEfficient, attend

BF16, FP32 = torch.bfloat16, torch.float32
ROUNDED = {BF16: 2e-2, FP32: 1e-4}
"""Largest error of a result, relative in the L2 norm: results are rounded once or twice, and sums are in FP32."""
EXACT = 1e-5
"""Largest relative error of FP32 arithmetic."""
SUMMED = 1e-4
"""Largest relative error of BF16 products summed in FP32. Tensor cores truncate these sums; rounding to BF16 would
raise the error to 2e-3."""
SEQUENCE, HEADS, SIZE = 2048, 2, 128
"""Sizes of the attention tried: the benchmark's sequence, two heads, the benchmark's head size."""


def numbers(*shape: int, dtype: torch.dtype = FP32, seed: int = 1) -> Tensor:
    """Return random numbers, on the CPU."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def require_close(name: str, result: Tensor, expected: Tensor, limit: float) -> str:
    """Raise CheckFailed if the relative error of ``result`` exceeds ``limit`` in the L2 norm, or if a value is
    not a number."""
    wide = expected.double()
    error = float((result.cpu().double() - wide).norm() / wide.norm())
    if not error <= limit:
        raise CheckFailed(f"{name}: relative error {error:.2g}, expected at most {limit:.2g}")
    return f"{name} {error:.1g}"


def held_against(
    plain: Callable[..., Tensor],
    ours: Callable[..., Mapping[str, Tensor]],
    inputs: list[Tensor],
    gradient: Tensor,
    device: torch.device,
) -> str:
    """Compare passes on the device with ``plain`` and its derivatives in FP64.

    ``ours`` takes the inputs and ``gradient`` and returns the output and the gradients of the inputs by name, in the
    order of the inputs.
    """
    wide = [tensor.double().requires_grad_() for tensor in inputs]
    output = plain(*wide)
    output.backward(gradient.double())  # type: ignore[no-untyped-call]
    results = ours(*(tensor.to(device) for tensor in (*inputs, gradient)))
    expected = [output.detach(), *(tensor.grad for tensor in wide if tensor.grad is not None)]
    errors = []
    for (name, result), reference in zip(results.items(), expected, strict=True):
        # Sums in FP32: a CPU rounds each product before it adds it.
        summed = result.dtype == FP32 and inputs[0].dtype == BF16 and device.type == "cuda"
        errors.append(require_close(name, result, reference, SUMMED if summed else ROUNDED[inputs[0].dtype]))
    return f"errors: {', '.join(errors)}"


def products(device: torch.device) -> str:
    """Try products: forward with bias, and the gradients of input, weight and bias. The product sums the weight's in
    FP32."""

    def ours(x: Tensor, weight: Tensor, bias: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        sums = torch.full(weight.shape, torch.nan, device=device)
        put_product(sums, gradient, x)
        add_product(sums, gradient, x)
        return {
            "forward": torch.addmm(bias, x, weight.t()),
            "input": torch.mm(gradient, weight),
            "weight": sums / 2,
            "bias": gradient.sum(0, dtype=FP32),
        }

    inputs = [numbers(256, 512, dtype=BF16), numbers(384, 512, dtype=BF16), numbers(384).to(BF16)]
    return held_against(F.linear, ours, inputs, numbers(256, 384, dtype=BF16, seed=2), device)


def layer_norms(device: torch.device) -> str:
    """Try layer norms, forward and backward."""

    def ours(x: Tensor, gain: Tensor, bias: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        out, state = layer_norm_forward(x, gain, bias)
        return {
            "forward": out,
            **dict(zip(("input", "gain", "bias"), layer_norm_backward(gradient, x, state, gain, bias), strict=True)),
        }

    def plain(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (12288,), gain, bias, LAYER_NORM_EPSILON)

    inputs = [numbers(64, 12288, dtype=BF16), numbers(12288, dtype=BF16, seed=2), numbers(12288).to(BF16)]
    return held_against(plain, ours, inputs, numbers(64, 12288, dtype=BF16, seed=3), device)


def gelus(device: torch.device) -> str:
    """Try GELU, forward and backward."""

    def ours(x: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        return {"forward": gelu(x), "backward": gelu_backward(gradient, x)}

    plain = partial(F.gelu, approximate="tanh")
    return held_against(plain, ours, [numbers(64, 4096, dtype=BF16)], numbers(64, 4096, dtype=BF16, seed=2), device)


def attention(kernel: Callable[[], Kernel], dtype: torch.dtype, device: torch.device) -> str:
    """Try attention forward and backward with one kernel; on a CPU, with the CPU's kernel."""

    def ours(qkv: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        heads = attend(qkv, 1, HEADS, kernel() if device.type == "cuda" else CpuFlash())
        return {"forward": heads.out(), "backward": heads.backward(gradient)}

    def plain(qkv: Tensor) -> Tensor:
        q, k, v = qkv.view(SEQUENCE, 1, HEADS, 3, SIZE).permute(3, 1, 2, 0, 4)
        out: Tensor = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.permute(2, 0, 1, 3).reshape(SEQUENCE, -1)

    qkv = numbers(SEQUENCE, HEADS * 3 * SIZE, dtype=dtype)
    return held_against(plain, ours, [qkv], numbers(SEQUENCE, HEADS * SIZE, dtype=dtype, seed=2), device)


def adams(device: torch.device) -> str:
    """Try three updates of Adam against AdamW written out."""
    weight, gradient = numbers(100_000), numbers(100_000, seed=2) * 1e-3
    rate, beta1, beta2, epsilon, decay = 1e-2, 0.9, 0.95, 1e-8, 0.1
    on = weight.clone().to(device)
    optimizer = adam([on], lr=rate, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)
    expected, first, second = weight.double(), torch.zeros(100_000).double(), torch.zeros(100_000).double()
    for step in range(1, 4):
        on.grad = (gradient * step).to(device)
        optimizer.step()
        wide = gradient.double() * step
        first, second = beta1 * first + (1 - beta1) * wide, beta2 * second + (1 - beta2) * wide**2
        moved = first / (1 - beta1**step) / ((second / (1 - beta2**step)).sqrt() + epsilon)
        expected = expected * (1 - rate * decay) - rate * moved
    by = "apex" if device.type == "cuda" and apex_adam() is not None else "PyTorch"
    return f"{by}'s; errors: {require_close('weights', on, expected, EXACT)}"


def repeatable(device: torch.device) -> str:
    """Run attention's backward pass and row sums twice; with --deterministic the kernels must repeat every bit."""
    set_environment({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    use_deterministic_kernels()
    qkv, gradient = (numbers(512, size, dtype=torch.bfloat16).to(device) for size in (2 * 3 * 128, 2 * 128))
    rows = torch.arange(512, device=device) % 16
    results = []
    for _ in range(2):
        backward = attend(qkv, 1, 2).backward(gradient)
        sums = torch.zeros(16, backward.shape[1], device=device).index_add_(0, rows, backward.float())
        results.append((backward, sums))
    if not all(torch.equal(first, second) for first, second in zip(*results, strict=True)):
        raise CheckFailed("the same kernels gave other bits the second time")
    return "the same bits twice"


@dataclass(frozen=True)
class DeviceFeature:
    """One row of the table."""

    attempt: Callable[[torch.device], str]
    """Function that returns its result in words. It raises CheckFailed for wrong numbers, or PyTorch's exception."""
    without: str = ""
    """Substitute that a run uses without the feature; empty if there is none."""
    on_cpu: bool = True
    """True if the feature can be tried on a CPU."""


WITHOUT_FP8 = "--precision bf16"
LEFT_OUT = 2
"""Exit status for a feature that this device was not made for."""
FEATURES = {
    "products": DeviceFeature(products),
    "layer norms": DeviceFeature(layer_norms),
    "gelu": DeviceFeature(gelus),
    "cudnn attention": DeviceFeature(partial(attention, CudnnFlash, BF16), "FlashAttention", on_cpu=False),
    "flash attention": DeviceFeature(partial(attention, Flash, BF16)),
    "efficient attention": DeviceFeature(partial(attention, MemoryEfficient, FP32), on_cpu=False),
    "shared heads": DeviceFeature(shared_heads, "FlashAttention, or keys repeated for every head"),
    "adam": DeviceFeature(adams),
    "training in FP32": DeviceFeature(partial(trained_as_on_a_cpu, "fp32")),
    "training in BF16": DeviceFeature(partial(trained_as_on_a_cpu, "bf16")),
    "FP8 products": DeviceFeature(fp8_products, WITHOUT_FP8),
    "training in FP8": DeviceFeature(partial(trained_as_on_a_cpu, "fp8"), WITHOUT_FP8),
    "repeatable": DeviceFeature(repeatable, "runs do not repeat to the bit"),
}
"""Features by name, in the order in which they are tried."""


def try_feature(name: str, device: str) -> None:
    """Try the feature, print the result, and end this process."""
    try:
        line, status = FEATURES[name].attempt(torch.device(device, 0) if device == "cuda" else torch.device(device)), 0
    except InputError as error:
        line, status = str(error), LEFT_OUT
    except Exception as error:  # any exception is the result
        line, status = f"{type(error).__name__}: {' '.join(str(error).split())}", 1
    print(f"\n{line}", flush=True)
    os._exit(status)  # threads of libraries may hang at the end of a spoilt process


if __name__ == "__main__":
    try_feature(*sys.argv[1:])
