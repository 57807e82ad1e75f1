"""``calibration.json``, the rates that a slice measured on real devices (docs/slice.md), and the constants from it.

All times are seconds, all sizes bytes unless a name says otherwise; every figure was measured on the named device.
Figures that were not measured are absent: collectives on one device, clocks where NVML does not report them.

The measured rates replace an accelerator's constants; the rest stays as it is in the table. One rate for all matrix
products is chosen so that the model's times of the measured shapes add up to the measured ones.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.planning.run_plan.plan_options import PlanOptions
from benchmark.planning.step_model.machine_constants import Constant, Rates, committed_constants
from benchmark.planning.step_model.memory_formula import ACCUMULATOR_BYTES
from benchmark.planning.step_model.operation_times import attention_s, matmul_s
from benchmark.planning.step_model.simulated_step import simulate_step
from benchmark.planning.step_model.workload import TIMED_FORMATS, Layout, Workload
from foundation.errors import InputError
from foundation.regular_files import read_regular
from model.decoder_sizes import Recompute

FORMAT: Literal[1] = 1
SOURCE = "calibration.json"
LARGEST_FILE = 4 << 20
"""Largest size of the file in bytes: ten times the size of a slice's file."""
SPREAD = 0.03
"""Relative range of a measured rate: rates differ between runs, and between a slice and a whole step's temperature."""
SHARE_SPREAD = 0.1
"""Range of a measured share of hidden messages, to both sides: one machine differs from many."""
MOST_SLOWDOWN = 0.35
"""Largest slowdown of products beside messages, measured on one H100 for any of its kernels (docs/notes/hopper.md)."""
MOST_APART = 20.0
"""Largest factor between a measured rate and the table's; beyond it the rate is refused as no measurement."""
LOSSES = "stacks.ours.losses"
LOSS_SPREAD = 0.02
"""Range of the measured losses, to both sides: eight readings of a rank were 1.6 % apart (docs/notes/hopper.md)."""
FP8_CAST, FP8_TRANSPOSE = "fp8 cast", "fp8 transpose"
"""Operations that make FP8 operands; the latter has a constant of its own (byte_transposes)."""
MOST_LOST = 0.3
"""Largest share of a step's time that may be lost; a slower slice has another fault."""
Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 50)]
"""Number of anything counted: tokens, bytes, devices."""
MeasuredNumber = Annotated[float, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
"""Positive duration in seconds."""
MatmulRole = Literal["forward", "input gradient", "weight gradient"]
"""Role of a matrix product: forward is output = input x weight^T; the input gradient is the gradient of that input; the
weight gradient is added to an FP32 sum."""
CollectiveKind = Literal["all-gather", "reduce-scatter", "all-reduce", "send"]


@dataclass(frozen=True)
class MatmulTime:
    """Time of one matrix product of a block or of the output layer, alone on the device."""

    layer: str
    """Name of the weight: output, or one of the model's products (model/decoder_sizes.py); with + between those that
    one product computes together."""
    role: MatmulRole
    tensor_parallel: Size
    tokens: Size
    """Tokens of all samples of a micro-batch."""
    inputs: Size
    """Columns of the layer's input on one tensor-parallel rank."""
    outputs: Size
    """Columns of the layer's output on one tensor-parallel rank. The product takes 2 x tokens x inputs x outputs FLOPs
    in every role."""
    seconds: Seconds
    precision: Precision = "bf16"
    """Format of the numbers that are multiplied. Of an FP8 slice the output layer, and most weight gradients, are BF16
    products."""

    @property
    def tflops(self) -> float:
        return 2e-12 * self.tokens * self.inputs * self.outputs / self.seconds


@dataclass(frozen=True)
class AttentionTime:
    """Time of causal attention between the matrix products, by the kernel that trains."""

    role: Literal["forward", "backward"]
    samples: Size
    heads: Size
    """Heads on one tensor-parallel rank."""
    sequence: Size
    head_size: Size
    seconds: Seconds

    @property
    def tflops(self) -> float:
        """10^12 FLOP/s. The whole S x S square counts, and the backward pass counts as two forward passes, as in
        model/flops.py."""
        forward = 4e-12 * self.samples * self.heads * self.sequence**2 * self.head_size
        return (1 if self.role == "forward" else 2) * forward / self.seconds


@dataclass(frozen=True)
class ElementwiseTime:
    """Time of one pass over memory."""

    operation: str
    """Name of the operation (copy, gelu, layer norm, adam ...), as
    benchmark/planning/slice/device_rates.py lists them."""
    bytes: Size
    """Bytes read and written."""
    seconds: Seconds

    @property
    def gb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e9


@dataclass(frozen=True)
class LaunchTime:
    """Time of a kernel that does next to nothing."""

    host_s: MeasuredNumber
    """Seconds that queueing one kernel takes on the host, Python and PyTorch's dispatcher included."""
    device_s: MeasuredNumber
    """Seconds from one kernel to the next on the device while many are queued."""


@dataclass(frozen=True)
class CollectiveTime:
    """Time of one message between devices of one machine while nothing else runs; the slowest rank's time."""

    kind: CollectiveKind
    """Kind of message; send goes from each even rank to the next."""
    ranks: Size
    bytes: Size
    """Bytes of the larger side: the result of an all-gather, the input of a reduce-scatter."""
    seconds: Seconds


@dataclass(frozen=True)
class SliceStep:
    """The step that the slice ran, to compare with a plan."""

    layers: Size
    hidden_size: Size
    tensor_parallel: Size
    pipeline_parallel: Size
    pipeline_chunks: Size
    data_parallel: Size
    micro_batch_size: Size
    micro_batches: Size
    recompute: Recompute
    step_s: Seconds
    """Median seconds of a step."""
    tflops_per_device: MeasuredNumber
    by_kind_s: Mapping[str, MeasuredNumber]
    """Rank 0's seconds of kernels by kind, named as in
    benchmark/planning/slice/step_times.py; empty on a CPU."""
    exposed_communication_s: MeasuredNumber | None
    """Rank 0's seconds in which only communication ran."""
    host_s_per_micro_batch: MeasuredNumber | None
    clock_mhz: MeasuredNumber | None
    """Lowest clock in MHz seen while the steps ran."""
    power_w: MeasuredNumber | None
    """Highest power in watts seen while the steps ran."""
    fp8_weight_gradients: bool = False
    """True if weight gradients of an FP8 slice were FP8 products, too."""
    compiled_kernels: bool = True
    """False if fused kernels were not to be compiled (``--no-compiled-kernels``)."""
    seq_length: Size | None = None
    """Tokens of a sample; None, of files without it: the benchmark's sequence length."""


@dataclass(frozen=True)
class Calibration:
    """Everything in ``calibration.json``."""

    format: Literal[1]
    benchmark: str
    device: str
    """Device as the driver names it; "cpu" for a CPU, whose figures a plan cannot use."""
    accelerator: str
    """Name in benchmark/config/accelerators.py; empty if the device is not listed there."""
    true_width: bool
    """True if the hidden size is the benchmark's."""
    precision: str
    """Number format of the slice, as --precision names it: bf16, fp32 or fp8."""
    torch: str
    cuda: str
    """Version of CUDA; ``nccl`` is NCCL's version. Both are empty where there is none."""
    nccl: str
    matmuls: tuple[MatmulTime, ...]
    attention: tuple[AttentionTime, ...]
    elementwise: tuple[ElementwiseTime, ...]
    launch: LaunchTime
    collectives: tuple[CollectiveTime, ...]
    step: SliceStep


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write the file whole or not at all."""
    partial = path.with_name(f".partial-{path.name}")
    partial.write_text(json.dumps(asdict(calibration), indent=1) + "\n")
    partial.rename(path)


def read_calibration(path: Path) -> Calibration:
    """Read the file; raise InputError, naming the field, if it is missing, too large or of another form."""
    mend = "expected the calibration.json of a slice; change --calibration, or run the slice again"
    try:
        return msgspec.json.decode(read_regular(path, LARGEST_FILE), type=Calibration)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; {mend}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; {mend}") from None


def calibration_of(system: System, path: Path) -> Calibration:
    """Read the file; also raise InputError if its rates are not those of the system's accelerator."""
    measured = read_calibration(path)
    if measured.accelerator != system.accelerator:
        raise InputError(
            f"{path}: measured on {measured.accelerator or measured.device}, but system {system.name} has "
            f"{system.accelerator or 'CPUs'}; choose another --system, or omit --calibration"
        )
    return measured


def calibrated_rates(rates: Rates, measured: Calibration) -> Rates:
    """Return the rates with the measured ones in place of the table's.

    Raises InputError for rates that no device of its kind reaches.
    """
    memory_bytes_s = rates.device.memory_tb_s * 1e12
    factors = {
        "matmul_bf16": _ratio(_matmuls(rates, measured, "bf16")),
        "matmul_fp8": _ratio(_matmuls(rates, measured, "fp8")),
        "attention_forward": _ratio(_attention(rates, measured, "forward")),
        "attention_backward": _ratio(_attention(rates, measured, "backward")),
        "memory_tb_s": _ratio(
            (kernel.bytes / memory_bytes_s, kernel.seconds)
            for kernel in measured.elementwise
            if kernel.operation != FP8_TRANSPOSE
        ),
    }
    constants = {}
    for name, factor in factors.items():
        if factor is None:
            continue
        if not 1 / MOST_APART < factor < MOST_APART:
            raise InputError(
                f"calibration of {rates.accelerator}: {name} {factor:.3g} times the table's; measure again"
            )
        value = getattr(rates.device, name) * factor
        constants[f"accelerators.{rates.accelerator}.{name}"] = Constant(
            value, value * (1 - SPREAD), value * (1 + SPREAD), SOURCE
        )
    if rates.stack_name != "ours":
        return rates.changed(constants)
    constants |= _byte_transposes(rates.changed(constants), measured)
    changed = rates.changed(constants | _hidden_share(rates, measured))
    return changed.changed(_losses(changed, measured))


def planned_rates(system: System, options: PlanOptions, measured: Calibration | None = None) -> Rates | None:
    """Return the constants of the system's accelerator and the stack, with the rates that a slice measured; None if
    the table has none of the accelerator. Raises InputError for measured rates of such an accelerator."""
    table = committed_constants()
    if system.accelerator not in table.accelerators:
        if measured is None:
            return None
        names = ", ".join(table.accelerators)
        raise InputError(f"calibration of {system.accelerator or 'a device'}: constants exist only for {names}")
    rates = table.rates(system.accelerator, options.stack, network_gbit_s=options.network_gbit_s)
    return rates if measured is None else calibrated_rates(rates, measured)


def _losses(rates: Rates, measured: Calibration) -> dict[str, Constant]:
    """Return the share of the slice's passes that their parts do not account for at these rates; empty if the slice
    sent messages or was not of the benchmark's width."""
    step = measured.step
    devices = step.tensor_parallel * step.pipeline_parallel * step.data_parallel
    precision = next((name for name in TIMED_FORMATS if name == measured.precision), None)
    if devices > 1 or not measured.true_width or precision is None or measured.benchmark not in BENCHMARKS:
        return {}
    benchmark = BENCHMARKS[measured.benchmark]
    of_benchmark = benchmark.model
    model = replace(of_benchmark, num_layers=step.layers, seq_length=step.seq_length or of_benchmark.seq_length)
    batch_size = step.micro_batch_size * step.micro_batches
    layout = Layout(
        1,
        1,
        batch_size,
        step.micro_batch_size,
        recompute=step.recompute,
        fp8_weight_gradients=step.fp8_weight_gradients,
    )
    work = Workload(
        model,
        layout,
        precision,
        rates.accelerator,
        rates.stack_name,
        without=() if step.compiled_kernels else ("compiled-kernels",),
        bf16_layers=benchmark.bf16_layers,
    )
    none_s, half_s = (
        simulate_step(work, rates.changed({LOSSES: Constant(share, share, share, SOURCE)})).total
        for share in (0.0, 0.5)
    )  # a loss of half doubles the passes that have losses
    lost_s = max(0.0, step.step_s - none_s)
    share = min(MOST_LOST, lost_s / (half_s - none_s + lost_s))
    low, high = max(0.0, share - LOSS_SPREAD), share + LOSS_SPREAD
    return {LOSSES: Constant(share, low, high, SOURCE)}


def _hidden_share(rates: Rates, measured: Calibration) -> dict[str, Constant]:
    """Return the share of tensor-parallel messages that products hid; empty if the slice had no such messages."""
    step, messages_s = measured.step, measured.step.by_kind_s.get("communication", 0.0)
    if step.tensor_parallel == 1 or step.exposed_communication_s is None or messages_s <= 0:
        return {}
    share = min(1.0, max(0.0, 1 - step.exposed_communication_s / messages_s))
    slowdown = rates.stack.overlap_slowdown
    return {
        "stacks.ours.tensor_hidden": Constant(
            share, max(0.0, share - SHARE_SPREAD), min(1.0, share + SHARE_SPREAD), SOURCE
        ),
        "stacks.ours.overlap_slowdown": Constant(
            slowdown, slowdown.low, max(slowdown, MOST_SLOWDOWN), slowdown.source, backed=slowdown.backed
        ),
    }


def _ratio(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return modelled seconds over measured seconds, each summed; None without any pairs."""
    modelled, measured = 0.0, 0.0
    for model_s, measured_s in pairs:
        modelled, measured = modelled + model_s, measured + measured_s
    return modelled / measured if measured > 0 else None


def _byte_transposes(rates: Rates, measured: Calibration) -> dict[str, Constant]:
    """Return the time of transposing FP8 numbers over that of its bytes at the memory's rate; empty if none was
    measured."""
    memory_bytes_s = rates.device.memory_tb_s * 1e12
    slowness = _ratio(
        (kernel.seconds, kernel.bytes / memory_bytes_s)
        for kernel in measured.elementwise
        if kernel.operation == FP8_TRANSPOSE
    )
    if slowness is None:
        return {}
    spread = slowness * (1 - SPREAD), slowness * (1 + SPREAD)
    return {"common.byte_transposes": Constant(slowness, *spread, SOURCE)}


def _matmuls(rates: Rates, measured: Calibration, precision: Precision) -> Iterator[tuple[float, float]]:
    """Yield the modelled and the measured seconds of each product of numbers of this format."""
    for product in measured.matmuls:
        if product.precision == precision:
            yield _matmul(rates, product), product.seconds


def _matmul(rates: Rates, product: MatmulTime) -> float:
    sizes = {
        "forward": (product.tokens, product.outputs, product.inputs),
        "input gradient": (product.tokens, product.inputs, product.outputs),
        "weight gradient": (product.inputs, product.outputs, product.tokens),
    }[product.role]
    fp8 = product.precision == "fp8"
    extra_bytes = 0.0
    if product.role == "weight gradient" and not fp8:  # another kernel adds FP8 products
        extra_bytes = 2.0 * ACCUMULATOR_BYTES * product.inputs * product.outputs
    return matmul_s(rates, sizes, fp8=fp8, extra=extra_bytes)


def _attention(rates: Rates, measured: Calibration, role: str) -> Iterator[tuple[float, float]]:
    """Yield the modelled and the measured seconds of each shape of attention."""
    for kernel in measured.attention:
        if kernel.role == role:
            forward_s, backward_s = attention_s(
                rates,
                sequences=kernel.samples,
                heads=kernel.heads,
                seq=kernel.sequence,
                head=kernel.head_size,
                kind="cudnn",
            )
            yield (forward_s if role == "forward" else backward_s), kernel.seconds
