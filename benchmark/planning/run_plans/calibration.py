"""What a slice measured on real devices, for the plan: ``calibration.json`` (docs/slice.md).

All times are seconds, all sizes bytes unless a name says otherwise; every figure was measured on the device that is
named. What was not measured is absent: no collectives on one device, no clocks where nvidia-smi does not tell.
"""

import json
import math
import types
import typing
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from stage.errors import InputError

FORMAT = 1
LARGEST_FILE = 4 << 20
"""Bytes; ten times what a slice writes."""
MATMUL_ROLES = ("forward", "input gradient", "weight gradient")
"""Output = input weight^T; its gradient; the FP32 sum of weight gradients to which a product is added."""
COLLECTIVE_KINDS = ("all-gather", "reduce-scatter", "all-reduce", "send")


@dataclass(frozen=True)
class MatmulTime:
    """One matrix product of a block or of the output layer, alone on the device."""

    layer: str
    """qkv, dense, h_to_4h, 4h_to_h (as the checkpoint names them) or output."""
    role: str
    """Of ``MATMUL_ROLES``."""
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

    role: str
    """forward, or backward."""
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
    """copy, gelu, layer norm, adam ...: benchmark/slice_run/device_rates.py lists them."""
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

    kind: str
    """Of ``COLLECTIVE_KINDS``; send: from each even rank to the next."""
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
    by_kind_s: dict[str, float]
    """Rank 0: seconds of kernels by kind, as benchmark/slice_run/kernel_kinds.py names them; empty on a CPU."""
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
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: {path.stat().st_size:,} bytes, expected at most {LARGEST_FILE:,}")
        found = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected the calibration.json of a slice") from None
    except ValueError:
        raise InputError(f"{path}: not JSON; expected the calibration.json of a slice") from None
    if isinstance(found, dict) and found.get("format") != FORMAT:
        raise InputError(f"{path}: format {found.get('format')!r}, expected {FORMAT}; run the slice again")
    return _dataclass_of(Calibration, found, f"{path}: calibration")


Made = TypeVar("Made")


def _dataclass_of(kind: type[Made], found: Any, where: str) -> Made:
    """Raises InputError unless ``found`` has the fields of ``kind`` and no others, each of its type."""
    assert is_dataclass(kind)
    names = [field.name for field in fields(kind)]
    if not isinstance(found, dict) or set(found) != set(names):
        got = ", ".join(map(str, sorted(found))) if isinstance(found, dict) else type(found).__name__
        raise InputError(f"{where}: got {got}; expected the fields {', '.join(names)}")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _value_of(hints[name], found[name], f"{where}.{name}") for name in names})


def _value_of(hint: Any, found: Any, where: str) -> Any:
    if is_dataclass(hint):
        return _dataclass_of(typing.cast(Any, hint), found, where)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and isinstance(found, list):
        return tuple(_value_of(inner[0], one, f"{where}[{place}]") for place, one in enumerate(found))
    if origin is dict and isinstance(found, dict):
        return {str(name): _value_of(inner[1], one, f"{where}.{name}") for name, one in found.items()}
    if origin is types.UnionType:
        return None if found is None else _value_of(inner[0], found, where)
    if hint is float and type(found) in (int, float) and math.isfinite(found) and found >= 0:
        return float(found)
    if type(found) is hint and (hint is not int or found >= 0) and hint is not float:
        return found
    words = {int: "a whole number", float: "a number of at least 0", str: "text", bool: "true or false"}
    expected = words.get(hint, "a list")
    raise InputError(f"{where}: got {found!r:.80}; expected {expected}")
