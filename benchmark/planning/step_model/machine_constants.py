"""Constants of accelerators and codes in one table: a value, a plausible range and a source.

``machine_constants.toml`` is the table. Constants fitted to published steps are marked (tests/backtest/).
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from foundation.errors import InputError

TABLE = Path(__file__).with_name("machine_constants.toml")


@dataclass(frozen=True)
class Constant:
    """A figure of the table."""

    value: float
    low: float
    high: float
    """Upper end of the plausible range."""
    source: str
    fitted: bool = False
    """True if the value was chosen so that published steps come out right."""
    backed: bool = False
    """True if published steps that were not used for fitting depend on the constant: their error covers its own."""


@dataclass(frozen=True)
class DeviceRates:
    """Rates of an accelerator, as steps see them."""

    matmul_bf16: float
    """10^12 FLOP/s of endless matrix products under training's power limit, not the peak."""
    matmul_fp8: float
    attention_forward: float
    """10^12 FLOP/s of FlashAttention 2 on long sequences; only work below the diagonal counts."""
    attention_backward: float
    memory_tb_s: float
    """10^12 bytes/s of elementwise kernels."""
    multiprocessors: float
    nvlink_gb_s: float
    """10^9 bytes/s of an all-gather within a node: its larger side x (n - 1) / n over its time."""
    nvlink_latency_us: float
    network_gbit_s: float
    """Gbit/s of one device's card to other nodes, each way, as usually built; a workload may override it."""


@dataclass(frozen=True)
class StackRates:
    """Rates of a code: what it hides and loses; a share is between 0 and 1."""

    tensor_hidden: float
    """Share of tensor-parallel messages that matrix products hide if there are enough products."""
    overlap_slowdown: float
    """Computation lost while messages travel beside it, over the messages' time; at 1 nothing is hidden."""
    elementwise: float
    """Bytes of the elementwise kernels over those of fully fused kernels."""
    host_ms_per_block: float
    """Milliseconds that the host takes to launch a block's forward and backward pass; no pass is shorter."""
    losses: float
    """Share of a pass's time that no modelled operation accounts for."""
    data_hidden: float
    """Share of data-parallel messages that computation hides if there is enough computation."""
    attention: float
    """Speed of the code's attention kernels over the speed measured for their kind."""
    step_ms: float
    """Milliseconds added to every step for each doubling of the devices: input, gradient norm, logging, waiting for the
    slowest."""
    error: float
    """Relative error not exceeded by nine of ten published steps of this stack that were not used for fitting; with few
    such steps, by those of all stacks."""


@dataclass(frozen=True)
class CommonRates:
    """Rates that hold for every machine."""

    matmul_fill: float
    """Depth K of a matrix product that takes as long as the beginning and end of a tile."""
    matmul_fill_fp8: float
    """The same depth for a matrix product in FP8."""
    wave_waste: float
    """Share of the last wave's idle multiprocessor time that is really lost."""
    kernel_gap_us: float
    """Microseconds between two kernels of a stream."""
    message_half_mb: float
    """Size at which an NVLink collective reaches half of its bandwidth, 10^6 bytes."""
    network_share: float
    """Share of a card's rate that messages reach."""
    network_hop_us: float
    """Microseconds of a message from node to node."""
    jitter: float
    """Share by which each doubling of the devices slows all of them, because they wait for the slowest at every
    exchange."""
    fp8_casts: float
    """Bytes of casting and transposing for products in FP8, over the bytes of one pass over each input and result."""
    fp8_weight_casts: float
    """Share of micro-batches that cast the weights of FP8 products again; the others reuse the cast weights."""


@dataclass(frozen=True)
class Rates:
    """All rates from which durations are computed."""

    device: DeviceRates
    network_gb_s: float
    """10^9 bytes/s of one device's messages to other nodes, each way."""
    stack: StackRates
    common: CommonRates


Section = TypeVar("Section", DeviceRates, StackRates, CommonRates)


def read_constants(path: Path = TABLE) -> dict[str, Constant]:
    """Read the table; its keys are dotted names such as ``accelerators.H100 SXM.matmul_bf16``."""
    table = tomllib.loads(path.read_text())
    common = {f"common.{key}": Constant(**entry) for key, entry in table.get("common", {}).items()}
    return common | {
        f"{section}.{name}.{key}": Constant(**entry)
        for section in ("accelerators", "stacks")
        for name, entries in table.get(section, {}).items()
        for key, entry in entries.items()
    }


@cache
def committed_constants() -> dict[str, Constant]:
    """Return the table of this repository; callers must not change it."""
    return read_constants()


def values_of(constants: Mapping[str, Constant]) -> dict[str, float]:
    return {name: constant.value for name, constant in constants.items()}


def rates(values: Mapping[str, float], accelerator: str, stack: str, *, network_gbit_s: float | None = None) -> Rates:
    """Return the constants of a step; ``network_gbit_s`` replaces the table's value.

    Raises InputError for a name that is not in the table, listing the names that are.
    """
    device = _section(values, "accelerators", accelerator, DeviceRates)
    common = CommonRates(**{entry.name: values[f"common.{entry.name}"] for entry in dataclasses.fields(CommonRates)})
    gbit_s = device.network_gbit_s if network_gbit_s is None else network_gbit_s
    return Rates(device, gbit_s / 8 * common.network_share, _section(values, "stacks", stack, StackRates), common)


def _section(values: Mapping[str, float], section: str, name: str, kind: type[Section]) -> Section:
    keys = [entry.name for entry in dataclasses.fields(kind)]
    if f"{section}.{name}.{keys[0]}" not in values:
        known = ", ".join(names_in(values, section))
        raise InputError(f"no constants of {section} {name!r}; there are {known} (step_model/machine_constants.toml)")
    return kind(**{key: values[f"{section}.{name}.{key}"] for key in keys})


def names_in(values: Mapping[str, object], section: str) -> list[str]:
    """Return the names of the accelerators or stacks in the table."""
    return list(dict.fromkeys(name.split(".", 1)[1].rsplit(".", 1)[0] for name in values if name.startswith(section)))
