"""What a slice measured on real devices, for the plan: ``calibration.json`` (docs/slice.md).

All times are seconds, all sizes bytes unless a name says otherwise; every figure was measured on the device that is
named. What was not measured is absent: no collectives on one device, no clocks where NVML does not tell.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from stage.errors import InputError
from stage.regular_files import read_regular

FORMAT: Literal[1] = 1
LARGEST_FILE = 4 << 20
"""Bytes; ten times what a slice writes."""
Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 50)]
"""Of anything that is counted: tokens, bytes, devices."""
Number = Annotated[float, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
"""Of what did something."""
MatmulRole = Literal["forward", "input gradient", "weight gradient"]
"""Output = input weight^T; its gradient; the FP32 sum of weight gradients to which a product is added."""
CollectiveKind = Literal["all-gather", "reduce-scatter", "all-reduce", "send"]


@dataclass(frozen=True)
class MatmulTime:
    """One matrix product of a block or of the output layer, alone on the device."""

    layer: str
    """qkv, dense, h_to_4h, 4h_to_h (as the checkpoint names them) or output."""
    role: MatmulRole
    tensor_parallel: Size
    tokens: Size
    """Of all samples of a micro-batch."""
    inputs: Size
    """Columns of the layer's input on one tensor-parallel rank ..."""
    outputs: Size
    """... and of its output. 2 x tokens x inputs x outputs FLOPs, whatever the role."""
    seconds: Seconds

    @property
    def tflops(self) -> float:
        return 2e-12 * self.tokens * self.inputs * self.outputs / self.seconds


@dataclass(frozen=True)
class AttentionTime:
    """Causal attention between the matrix products, by the kernel that trains."""

    role: Literal["forward", "backward"]
    samples: Size
    heads: Size
    """On one tensor-parallel rank."""
    sequence: Size
    head_size: Size
    seconds: Seconds

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
    bytes: Size
    """Read and written."""
    seconds: Seconds

    @property
    def gb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e9


@dataclass(frozen=True)
class LaunchTime:
    """Of a kernel that does next to nothing."""

    host_s: Number
    """What queueing it takes, Python and PyTorch's dispatcher included."""
    device_s: Number
    """From one to the next on the device when many are queued."""


@dataclass(frozen=True)
class CollectiveTime:
    """One message between devices of one machine, nothing else running; the slowest rank's time."""

    kind: CollectiveKind
    """send: from each even rank to the next."""
    ranks: Size
    bytes: Size
    """Of the larger side: what an all-gather puts together, a reduce-scatter begins with."""
    seconds: Seconds


@dataclass(frozen=True)
class SliceStep:
    """The step the slice ran, against which a plan can be held."""

    layers: Size
    hidden_size: Size
    tensor_parallel: Size
    pipeline_parallel: Size
    pipeline_chunks: Size
    data_parallel: Size
    micro_batch_size: Size
    micro_batches: Size
    recompute: str
    step_s: Seconds
    """Median."""
    tflops_per_device: Number
    by_kind_s: Mapping[str, Number]
    """Rank 0: seconds of kernels by kind, as benchmark/preflight/slice_run/step_times.py names them; empty on a CPU."""
    exposed_communication_s: Number | None
    """Rank 0: when nothing but communication ran."""
    host_s_per_micro_batch: Number | None
    clock_mhz: Number | None
    """Lowest that was seen while the steps ran."""
    power_w: Number | None
    """Highest."""


@dataclass(frozen=True)
class Calibration:
    """All of a file."""

    format: Literal[1]
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
    mend = "expected the calibration.json of a slice; change --calibration, or run the slice again"
    try:
        return msgspec.json.decode(read_regular(path, LARGEST_FILE), type=Calibration)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; {mend}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; {mend}") from None
