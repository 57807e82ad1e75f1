"""Measure the rates of this machine's devices, kernel by kernel and message by message, for plans to compute a step
from.

Shapes are those of the benchmark's ranks at every size of tensor parallelism, not only at the size that the slice runs
with.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from benchmark.config.field_checks import unfit_for_fp8
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.planning.run_plan.calibration import (
    AttentionTime,
    CollectiveKind,
    CollectiveTime,
    ElementwiseTime,
    LaunchTime,
    MatmulRole,
    MatmulTime,
)
from benchmark.planning.slice.fp8_rates import Fp8Layer, Passes, fp8_passes
from benchmark.training.engine.distributed import World
from benchmark.training.engine.rank_device import values_dtype
from model.decoder_sizes import INTO_MLP, DecoderSizes
from model.fused_kernel import FusedKernel
from model.gpt3_config import GPT3Config
from model.kernels import (
    adam,
    add_product,
    gelu,
    gelu_backward,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
    swiglu,
    swiglu_backward,
)
from model.llama31_config import Llama31Config
from model.passes.attention import attend
from model.passes.tensor_group import all_gather_single, reduce_scatter_single

REPETITION_S = {"cuda": 0.02, "cpu": 0.004}
"""Seconds of one repetition; it makes as many calls as take this long, so that queueing does not count."""
REPETITIONS = 3
MOST_CALLS = 1000
TENSOR_PARALLEL = (1, 2, 4, 8)
ADAM_PARAMETERS = {"cuda": 1 << 26, "cpu": 1 << 20}
ADAM_BYTES = 28
"""Bytes per parameter in FP32: weight, gradient and two moments are read, and all but the gradient are written."""
FP8_BITS = 8
LAUNCHES = 300
"""Number of launches: fewer than a queue holds, so that queueing never waits."""
MESSAGES = 5
MESSAGE_BYTES = {"cuda": tuple(4**power << 16 for power in range(7)), "cpu": (1 << 16, 1 << 20)}
"""Bytes of the larger side, from 64 KiB to 256 MiB; at full width a micro-batch's hidden state is 48 MiB."""


@dataclass(frozen=True)
class MeasuredRates:
    """Measured rates of one device."""

    matmuls: tuple[MatmulTime, ...]
    attention: tuple[AttentionTime, ...]
    elementwise: tuple[ElementwiseTime, ...]
    launch: LaunchTime


def device_rates(
    model: DecoderSizes, samples: int, precision: Precision, device: torch.device, *, fp8_weight_gradients: bool = False
) -> MeasuredRates:
    """Measure all rates, in the precision of the run and for micro-batches of ``samples``."""
    dtype, tokens = values_dtype(precision), samples * model.seq_length
    matmuls = matmul_times(model, tokens, device, precision, fp8_weight_gradients=fp8_weight_gradients)
    return MeasuredRates(
        matmuls=tuple(matmuls),
        attention=tuple(attention_times(model, samples, device, dtype)),
        elementwise=tuple(elementwise_times(model, tokens, device, dtype, casts=_is_fp8(precision))),
        launch=launch_time(device),
    )


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def event_now() -> Any:
    """Return a CUDA event recorded here, with its time."""
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def seconds_for(device: torch.device, calls: int, call: Callable[[], object]) -> float:
    """Return the seconds that the device takes for ``calls`` calls."""
    on_gpu = device.type == "cuda"
    begin: Any = event_now() if on_gpu else time.perf_counter()
    for _ in range(calls):
        call()
    if not on_gpu:
        return time.perf_counter() - float(begin)
    end = event_now()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def seconds_per_call(device: torch.device, call: Callable[[], object]) -> float:
    """Return the median of ``REPETITIONS``, after two untimed calls and some that choose the number of calls."""
    call()
    call()
    once = max(seconds_for(device, 2, call) / 2, 1e-7)
    calls = min(MOST_CALLS, max(1, round(REPETITION_S[device.type] / once)))
    return statistics.median(seconds_for(device, calls, call) for _ in range(REPETITIONS)) / calls


def _is_fp8(precision: Precision) -> bool:
    return NUMBER_FORMATS[precision].product_bits == FP8_BITS


def layer_shapes(model: DecoderSizes, tensor_parallel: int, *, joined: bool = False) -> dict[str, tuple[int, int]]:
    """Return inputs and outputs of each matrix on one rank; ``joined``: of those of one input together."""
    blocks = model.joined_products if joined else model.products
    shapes = {name: product.on_rank(tensor_parallel) for name, product in blocks.items()}
    return shapes | {"output": (model.hidden_size, model.padded_vocab_size // tensor_parallel)}


def possible_sizes(model: DecoderSizes, *, fp8: bool = False) -> list[int]:
    """Return the sizes of tensor parallelism by which the model can be divided; ``fp8``: for products in FP8."""
    divided = [getattr(model, name) for name in model.cut_by_tensor_parallelism]
    sizes = [size for size in TENSOR_PARALLEL if not any(number % size for number in divided)]
    return [size for size in sizes if not (fp8 and unfit_for_fp8(model, size))]


def matmul_times(
    model: DecoderSizes, tokens: int, device: torch.device, precision: Precision, *, fp8_weight_gradients: bool = False
) -> Iterator[MatmulTime]:
    """Time every layer in its three roles, in the number format that the role has in a run."""
    fp8, dtype = _is_fp8(precision), values_dtype(precision)
    of_values: Precision = "bf16" if fp8 else precision
    for size in possible_sizes(model, fp8=fp8):
        for layer, (inputs, outputs) in layer_shapes(model, size, joined=precision != "fp32").items():
            shape = tokens, inputs, outputs
            calls = {role: (of_values, call) for role, call in products(*shape, device, dtype).items()}
            if fp8 and layer != "output":
                of_fp8 = Fp8Layer(*shape, device).products(weight_gradients=fp8_weight_gradients)
                calls |= {role: (precision, call) for role, call in of_fp8.items()}
            for role, (number_format, call) in calls.items():
                seconds = seconds_per_call(device, call)
                yield MatmulTime(layer, role, size, *shape, seconds, number_format)


def products(
    tokens: int, inputs: int, outputs: int, device: torch.device, dtype: torch.dtype
) -> dict[MatmulRole, Callable[[], object]]:
    """Return the products of a layer by role, with random values: the power of a GPU, and so its speed, depends on the
    values."""
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
    model: DecoderSizes, samples: int, device: torch.device, dtype: torch.dtype
) -> Iterator[AttentionTime]:
    """Time the attention kernel of a rank at each size of tensor parallelism; shared keys and values reach it once for
    every head."""
    head = model.head_size
    for size in possible_sizes(model):
        heads, tokens = model.num_attention_heads // size, samples * model.seq_length
        qkv = torch.randn(tokens, heads * 3 * head, device=device, dtype=dtype)
        gradient = torch.randn(tokens, heads * head, device=device, dtype=dtype)
        calls: dict[Literal["forward", "backward"], Callable[[], object]] = {
            "forward": partial(attend, qkv, samples, heads),
            "backward": partial(attend(qkv, samples, heads).backward, gradient),
        }
        for role, call in calls.items():
            yield AttentionTime(role, samples, heads, model.seq_length, head, seconds_per_call(device, call))


def elementwise_times(
    model: DecoderSizes, tokens: int, device: torch.device, dtype: torch.dtype, *, casts: bool = False
) -> Iterator[ElementwiseTime]:
    """Time passes over a block's tensors, by the kernels that train, and Adam; ``casts``: those to FP8, too."""
    x_TH, x_TF = (
        torch.randn(tokens, n, device=device, dtype=dtype) for n in (model.hidden_size, model.columns(*INTO_MLP))
    )
    out_TH, out_TF = torch.empty_like(x_TH), torch.empty_like(x_TF)
    weights = torch.randn(ADAM_PARAMETERS[device.type], device=device)
    weights.grad = torch.randn_like(weights)
    optimizer = adam([weights], lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    narrow, wide = x_TH.nbytes, x_TF.nbytes
    passes: Passes = {
        "copy": (2 * wide, lambda: out_TF.copy_(x_TF)),
        "add": (3 * narrow, lambda: torch.add(x_TH, x_TH, out=out_TH)),
        **OWN_PASSES[type(model)](x_TH, x_TF),
        **(fp8_passes(x_TF) if casts else {}),
        "adam": (ADAM_BYTES * weights.numel(), optimizer.step),
    }
    for name, (size, call) in passes.items():
        yield ElementwiseTime(name, size, seconds_per_call(device, call))


def _gpt3_passes(x_TH: Tensor, x_TF: Tensor) -> Passes:
    gain, narrow, wide = torch.ones_like(x_TH[0]), x_TH.nbytes, x_TF.nbytes
    _, state = layer_norm_forward(x_TH, gain, gain)
    return {
        "gelu": (2 * wide, lambda: gelu(x_TF)),
        "gelu backward": (3 * wide, lambda: gelu_backward(x_TF, x_TF)),
        "layer norm": (2 * narrow, lambda: layer_norm_forward(x_TH, gain, gain)),
        "layer norm backward": (3 * narrow, lambda: layer_norm_backward(x_TH, x_TH, state, gain, gain)),
        "bias gradient": (wide, lambda: x_TF.sum(0, dtype=torch.float32)),
    }


def _llama31_passes(x_TH: Tensor, x_T2F: Tensor) -> Passes:
    """SwiGLU's passes are compiled kernels, or several operators each."""
    gain, narrow = torch.ones_like(x_TH[0]), x_TH.nbytes
    gradient_TF = x_T2F[:, : x_T2F.shape[1] // 2].contiguous()
    _, state = rms_norm_forward(x_TH, gain)
    return {
        "swiglu": _fused_pass(swiglu, x_T2F),
        "swiglu backward": _fused_pass(swiglu_backward, gradient_TF, x_T2F),
        "rms norm": (2 * narrow, lambda: rms_norm_forward(x_TH, gain)),
        "rms norm backward": (3 * narrow, lambda: rms_norm_backward(x_TH, x_TH, state, gain)),
    }


def _fused_pass(kernel: FusedKernel[Any, Any], *arguments: Tensor) -> tuple[int, Callable[[], Any]]:
    """Return the bytes that a call moves as it runs here, and the call."""
    moved = kernel.bytes_moved(arguments, kernel(*arguments))
    return round(moved * (1 if kernel.is_fused else kernel.operator_bytes)), partial(kernel, *arguments)


OWN_PASSES: Mapping[type[DecoderSizes], Callable[[Tensor, Tensor], Passes]] = {
    GPT3Config: _gpt3_passes,
    Llama31Config: _llama31_passes,
}
"""Kernels that only some models have, by the class of their sizes; of the hidden state and of the input of the
activation."""


def launch_time(device: torch.device) -> LaunchTime:
    """Time a kernel that adds 1 to one number."""
    number = torch.zeros(1, device=device)
    for _ in range(2):  # the first loads the kernel
        synchronize(device)
        started = time.perf_counter()
        for _ in range(LAUNCHES):
            number.add_(1)
        queued = time.perf_counter()
        synchronize(device)
        ended = time.perf_counter()
    return LaunchTime((queued - started) / LAUNCHES, (ended - started) / LAUNCHES)


def collective_times(world: World) -> list[CollectiveTime]:
    """Time messages of BF16 numbers between all ranks. All ranks return the slowest rank's times; one rank alone
    returns none. All ranks must call it."""
    if world.size == 1:
        return []
    times = []
    for size in MESSAGE_BYTES[world.device.type]:
        shard_size = size // 2 // world.size
        gathered = torch.zeros(shard_size * world.size, dtype=torch.bfloat16, device=world.device)
        shard = torch.zeros(shard_size, dtype=torch.bfloat16, device=world.device)
        calls: dict[CollectiveKind, Callable[[], object]] = {
            "all-gather": partial(all_gather_single, gathered, shard),
            "reduce-scatter": partial(reduce_scatter_single, shard, gathered),
            "all-reduce": partial(dist.all_reduce, gathered),
            "send": partial(_send, world, gathered),
        }
        for kind, call in calls.items():
            call()
            synchronize(world.device)
            world.barrier()
            seconds = seconds_for(world.device, MESSAGES, call) / MESSAGES
            slowest = torch.tensor(seconds, dtype=torch.float64, device=world.device)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            times.append(CollectiveTime(kind, 2 if kind == "send" else world.size, size, slowest.item()))
    return times


def _send(world: World, message: Tensor) -> None:
    """Send from each even rank to the next."""
    partner = world.rank ^ 1
    if partner >= world.size:
        return
    operation = dist.P2POp(dist.irecv if world.rank % 2 else dist.isend, message, partner)
    for work in dist.batch_isend_irecv([operation]):
        work.wait()
