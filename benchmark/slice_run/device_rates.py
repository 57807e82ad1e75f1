"""Rates of one device, measured kernel by kernel: what a plan computes the time of a step from.

Shapes are those that ranks of the benchmark have at each size of tensor parallelism, whatever the slice itself runs at.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch

from benchmark.planning.run_plans.calibration import (
    AttentionTime,
    ElementwiseTime,
    LaunchTime,
    MatmulRole,
    MatmulTime,
)
from benchmark.slice_run.stopwatch import seconds_per_call, synchronize
from model.gpt3_config import GPT3Config
from model.kernels import adam, add_product, gelu, gelu_backward, layer_norm_backward, layer_norm_forward
from model.passes.attention import attend

TENSOR_PARALLEL = (1, 2, 4, 8)
ADAM_PARAMETERS = 1 << 26
ADAM_BYTES = 28
"""Per parameter: weight, gradient and two moments read, three of them written, FP32."""
LAUNCHES = 300
"""Fewer than a queue holds, so that queueing never waits."""


def layer_shapes(model: GPT3Config, tensor_parallel: int) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of each matrix on one rank."""
    H, F = model.hidden_size, model.ffn_hidden_size
    t = tensor_parallel
    return {
        "qkv": (H, 3 * H // t),
        "dense": (H // t, H),
        "h_to_4h": (H, F // t),
        "4h_to_h": (F // t, H),
        "output": (H, model.padded_vocab_size // t),
    }


def possible_sizes(model: GPT3Config) -> list[int]:
    """Of tensor parallelism."""
    divided = (model.num_attention_heads, model.seq_length, model.padded_vocab_size)
    return [size for size in TENSOR_PARALLEL if not any(number % size for number in divided)]


def matmul_times(
    model: GPT3Config, tokens: int, device: torch.device, dtype: torch.dtype, until_s: float
) -> Iterator[MatmulTime]:
    """Every layer in its three roles, until ``time.monotonic()`` is ``until_s``; at least those of one size."""
    for size in possible_sizes(model):
        for layer, (inputs, outputs) in layer_shapes(model, size).items():
            if size > 1 and time.monotonic() > until_s:
                return
            for role, call in products(tokens, inputs, outputs, device, dtype).items():
                seconds = seconds_per_call(device, call)
                yield MatmulTime(layer, role, size, tokens, inputs, outputs, seconds)


def products(
    tokens: int, inputs: int, outputs: int, device: torch.device, dtype: torch.dtype
) -> dict[MatmulRole, Callable[[], object]]:
    """By role. Values at random: what a GPU draws, and so how fast it is, depends on them."""
    x_TI, gradient_TO = (torch.randn(tokens, size, device=device, dtype=dtype) for size in (inputs, outputs))
    weight_OI = torch.randn(outputs, inputs, device=device, dtype=dtype)
    sums_OI = torch.zeros(outputs, inputs, device=device, dtype=torch.float32)
    bias_O = torch.randn(outputs, device=device, dtype=dtype)
    return {
        "forward": lambda: torch.addmm(bias_O, x_TI, weight_OI.t()),
        "input gradient": lambda: torch.mm(gradient_TO, weight_OI),
        "weight gradient": lambda: add_product(sums_OI, gradient_TO, x_TI),
    }


def attention_times(
    model: GPT3Config, samples: int, device: torch.device, dtype: torch.dtype
) -> Iterator[AttentionTime]:
    head = model.hidden_size // model.num_attention_heads
    for size in possible_sizes(model):
        heads = model.num_attention_heads // size
        tokens = samples * model.seq_length
        qkv = torch.randn(tokens, heads * 3 * head, device=device, dtype=dtype)
        gradient = torch.randn(tokens, heads * head, device=device, dtype=dtype)
        attended = attend(qkv, samples, heads)
        calls: dict[Literal["forward", "backward"], Callable[[], object]] = {
            "forward": partial(attend, qkv, samples, heads),
            "backward": partial(attended.backward, gradient),
        }
        for role, call in calls.items():
            yield AttentionTime(role, samples, heads, model.seq_length, head, seconds_per_call(device, call))


def elementwise_times(
    model: GPT3Config, tokens: int, device: torch.device, dtype: torch.dtype
) -> Iterator[ElementwiseTime]:
    """Passes over what a block has in memory, by the kernels that train, and Adam."""
    x_TH, x_TF = (
        torch.randn(tokens, n, device=device, dtype=dtype) for n in (model.hidden_size, model.ffn_hidden_size)
    )
    out_TH, out_TF = torch.empty_like(x_TH), torch.empty_like(x_TF)
    gain = torch.ones(model.hidden_size, device=device, dtype=dtype)
    _, state = layer_norm_forward(x_TH, gain, gain)
    narrow, wide = x_TH.numel() * x_TH.element_size(), x_TF.numel() * x_TF.element_size()
    passes: dict[str, tuple[int, Callable[[], object]]] = {
        "copy": (2 * wide, lambda: out_TF.copy_(x_TF)),
        "add": (3 * narrow, lambda: torch.add(x_TH, x_TH, out=out_TH)),
        "gelu": (2 * wide, lambda: gelu(x_TF)),
        "gelu backward": (3 * wide, lambda: gelu_backward(x_TF, x_TF)),
        "layer norm": (2 * narrow, lambda: layer_norm_forward(x_TH, gain, gain)),
        "layer norm backward": (3 * narrow, lambda: layer_norm_backward(x_TH, x_TH, state, gain, gain)),
        "bias gradient": (wide, lambda: x_TF.sum(0, dtype=torch.float32)),
    }
    for name, (size, call) in passes.items():
        yield ElementwiseTime(name, size, seconds_per_call(device, call))
    number = ADAM_PARAMETERS if device.type == "cuda" else ADAM_PARAMETERS >> 6
    weights = torch.randn(number, device=device)
    weights.grad = torch.randn_like(weights)
    optimizer = adam([weights], lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    yield ElementwiseTime("adam", ADAM_BYTES * number, seconds_per_call(device, optimizer.step))


def launch_time(device: torch.device) -> LaunchTime:
    """Of adding 1 to one number."""
    number = torch.zeros(1, device=device)
    times = []
    for _ in range(2):  # the first loads the kernel
        synchronize(device)
        started = time.perf_counter()
        for _ in range(LAUNCHES):
            number.add_(1)
        queued = time.perf_counter()
        synchronize(device)
        times.append(LaunchTime((queued - started) / LAUNCHES, (time.perf_counter() - started) / LAUNCHES))
    return times[-1]
