"""Read and write ``calibration.json``, the rates that a slice measured on real devices (docs/slice.md).

All times are seconds, all sizes bytes unless a name says otherwise; every figure was measured on the named device.
Figures that were not measured are absent: collectives on one device, clocks where NVML does not report them.
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
"""Largest size of the file in bytes: ten times what a slice writes."""
Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 50)]
"""Number of anything counted: tokens, bytes, devices."""
Number = Annotated[float, msgspec.Meta(ge=0)]
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
    """Layer as the checkpoint names it: qkv, dense, h_to_4h, 4h_to_h or output."""
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
    """Name of the operation (copy, gelu, layer norm, adam ...), as benchmark/preflight/slice_run/device_rates.py lists
    them."""
    bytes: Size
    """Bytes read and written."""
    seconds: Seconds

    @property
    def gb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e9


@dataclass(frozen=True)
class LaunchTime:
    """Time of a kernel that does next to nothing."""

    host_s: Number
    """Seconds that queueing one kernel takes on the host, Python and PyTorch's dispatcher included."""
    device_s: Number
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
    recompute: str
    step_s: Seconds
    """Median seconds of a step."""
    tflops_per_device: Number
    by_kind_s: Mapping[str, Number]
    """Rank 0's seconds of kernels by kind, named as in benchmark/preflight/slice_run/step_times.py; empty on a CPU."""
    exposed_communication_s: Number | None
    """Rank 0's seconds in which only communication ran."""
    host_s_per_micro_batch: Number | None
    clock_mhz: Number | None
    """Lowest clock in MHz seen while the steps ran."""
    power_w: Number | None
    """Highest power in watts seen while the steps ran."""


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
    """Precision of matrix products and attention: bf16 or fp32."""
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
