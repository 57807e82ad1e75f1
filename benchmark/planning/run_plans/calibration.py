"""What a slice measured on real devices, for the plan: ``calibration.json`` (docs/slice.md).

All times are seconds, all sizes bytes unless a name says otherwise; every figure was measured on the device that is
named. What was not measured is absent: no collectives on one device, no clocks where NVML does not tell.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from stage.errors import InputError
from stage.regular_files import read_regular

FORMAT = 1
LARGEST_FILE = 4 << 20
"""Bytes; ten times what a slice writes."""
LARGEST_SIZE = 1 << 50
"""Of anything that is counted: tokens, bytes, devices."""
MOST_SHOWN = 120
"""Characters of a field's name in a message."""
ABOVE_ZERO = ("seconds", "step_s")
"""Times of what did something."""
MatmulRole = Literal["forward", "input gradient", "weight gradient"]
"""Output = input weight^T; its gradient; the FP32 sum of weight gradients to which a product is added."""
CollectiveKind = Literal["all-gather", "reduce-scatter", "all-reduce", "send"]


@dataclass(frozen=True)
class MatmulTime:
    """One matrix product of a block or of the output layer, alone on the device."""

    layer: str
    """qkv, dense, h_to_4h, 4h_to_h (as the checkpoint names them) or output."""
    role: MatmulRole
    tensor_parallel: int
    tokens: int
    """Of all samples of a micro-batch."""
    inputs: int
    """Columns of the layer's input on one tensor-parallel rank ..."""
    outputs: int
    """... and of its output. 2 x tokens x inputs x outputs FLOPs, whatever the role."""
    seconds: float

    @property
    def tflops(self) -> float:
        return 2e-12 * self.tokens * self.inputs * self.outputs / self.seconds


@dataclass(frozen=True)
class AttentionTime:
    """Causal attention between the matrix products, by the kernel that trains."""

    role: Literal["forward", "backward"]
    samples: int
    heads: int
    """On one tensor-parallel rank."""
    sequence: int
    head_size: int
    seconds: float

    @property
    def tflops(self) -> float:
        """The whole square counted, the backward pass as twice the forward pass, as in model/flops.py."""
        forward = 4e-12 * self.samples * self.heads * self.sequence**2 * self.head_size
        return (1 if self.role == "forward" else 2) * forward / self.seconds


@dataclass(frozen=True)
class ElementwiseTime:
    """One pass over memory."""

    operation: str
    """copy, gelu, layer norm, adam ...: benchmark/preflight/slice_run/device_rates.py lists them."""
    bytes: int
    """Read and written."""
    seconds: float

    @property
    def gb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e9


@dataclass(frozen=True)
class LaunchTime:
    """Of a kernel that does next to nothing."""

    host_s: float
    """What queueing it takes, Python and PyTorch's dispatcher included."""
    device_s: float
    """From one to the next on the device when many are queued."""


@dataclass(frozen=True)
class CollectiveTime:
    """One message between devices of one machine, nothing else running; the slowest rank's time."""

    kind: CollectiveKind
    """send: from each even rank to the next."""
    ranks: int
    bytes: int
    """Of the larger side: what an all-gather puts together, a reduce-scatter begins with."""
    seconds: float


@dataclass(frozen=True)
class SliceStep:
    """The step the slice ran, against which a plan can be held."""

    layers: int
    hidden_size: int
    tensor_parallel: int
    pipeline_parallel: int
    pipeline_chunks: int
    data_parallel: int
    micro_batch_size: int
    micro_batches: int
    recompute: str
    step_s: float
    """Median."""
    tflops_per_device: float
    by_kind_s: Mapping[str, float]
    """Rank 0: seconds of kernels by kind, as benchmark/preflight/slice_run/step_times.py names them; empty on a CPU."""
    exposed_communication_s: float | None
    """Rank 0: when nothing but communication ran."""
    host_s_per_micro_batch: float | None
    clock_mhz: float | None
    """Lowest that was seen while the steps ran."""
    power_w: float | None
    """Highest."""


@dataclass(frozen=True)
class Calibration:
    """All of a file."""

    format: int
    benchmark: str
    device: str
    """As the driver names it; "cpu" for a CPU, of which a plan can use nothing but the form."""
    accelerator: str
    """Name in benchmark/config/accelerators.py; empty where it is not there."""
    true_width: bool
    """Whether the hidden size is the benchmark's."""
    precision: str
    """Of matrix products and attention: bf16 or fp32."""
    torch: str
    cuda: str
    """Version, as of ``nccl``; both are empty where there is none."""
    nccl: str
    matmuls: tuple[MatmulTime, ...]
    attention: tuple[AttentionTime, ...]
    elementwise: tuple[ElementwiseTime, ...]
    launch: LaunchTime
    collectives: tuple[CollectiveTime, ...]
    step: SliceStep


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Whole or not at all."""
    partial = path.with_name(f".partial-{path.name}")
    partial.write_text(json.dumps(asdict(calibration), indent=1) + "\n")
    partial.rename(path)


def read_calibration(path: Path) -> Calibration:
    """Raises InputError for a file that is not there, too large, or of another form, with the field."""
    mend = "expected the calibration.json of a slice; change --calibration"
    try:
        found = msgspec.json.decode(read_regular(path, LARGEST_FILE), type=dict[str, Any])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; {mend}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; {mend}") from None
    if found.get("format") != FORMAT:
        raise InputError(f"{path}: format {found.get('format')!r:.80}, expected {FORMAT}; run the slice again")
    try:
        calibration = msgspec.convert(found, Calibration)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}; {mend}") from None
    problem = next(_impossible(calibration, "calibration"), None)
    if problem is not None:
        raise InputError(f"{path}: {problem}; run the slice again")
    return calibration


def _impossible(value: Any, where: str) -> Iterator[str]:
    """Figures that nothing measures: sizes of 0 or beyond ``LARGEST_SIZE``, times below 0 or without end."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _impossible(getattr(value, field.name), f"{where}.{field.name}")
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _impossible(one, f"{where}.{name}"[:MOST_SHOWN])
    elif isinstance(value, tuple):
        for place, one in enumerate(value):
            yield from _impossible(one, f"{where}[{place}]")
    elif type(value) is int and not 1 <= value <= LARGEST_SIZE:
        yield f"{where}: got {value}; expected 1 to {LARGEST_SIZE:,}"
    elif type(value) is float:
        above = where.endswith(ABOVE_ZERO)
        if not math.isfinite(value) or value < 0 or (above and value == 0):
            yield f"{where}: got {value:g}; expected a number {'above' if above else 'of at least'} 0"
