"""Constants of accelerators and codes: a value, a plausible range and where it is from, in one table.

``machine_constants.toml`` is the table. Constants that were fitted to published steps say so (tests/backtest/).
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from stage.errors import InputError

TABLE = Path(__file__).with_name("machine_constants.toml")


@dataclass(frozen=True)
class Constant:
    """A figure of the table."""

    value: float
    low: float
    high: float
    """Range that it may plausibly have."""
    source: str
    fitted: bool = False
    """Whether the value was chosen so that published steps come out right."""
    backed: bool = False
    """Whether published steps that were not used for fitting stand behind it: their error covers its own."""


@dataclass(frozen=True)
class DeviceRates:
    """An accelerator, as steps see it."""

    matmul_bf16: float
    """Of endless matrix products under training's power, not the peak; 10^12 FLOP/s."""
    matmul_fp8: float
    attention_forward: float
    """Of FlashAttention 2 on long sequences, 10^12 FLOP/s; only what is below the diagonal counts as work."""
    attention_backward: float
    memory_tb_s: float
    """Of elementwise kernels, 10^12 bytes/s."""
    multiprocessors: float
    nvlink_gb_s: float
    """Of an all-gather within a node: its larger side x (n - 1) / n over the time; 10^9 bytes/s."""
    nvlink_latency_us: float
    network_gbit_s: float
    """Of one device's card to other nodes, each way, as machines are usually built; a workload may say another."""


@dataclass(frozen=True)
class StackRates:
    """What a code hides and loses; a share is of 1."""

    tensor_hidden: float
    """Share of tensor-parallel messages that matrix products hide, where there are enough of them."""
    overlap_slowdown: float
    """Computation lost while messages travel beside it, over their time; 1: nothing is hidden."""
    elementwise: float
    """Bytes of the elementwise kernels over those of fully fused ones."""
    host_ms_per_block: float
    """Host time to launch a block's forward and backward pass; no pass is shorter."""
    losses: float
    """Share of a pass's time that no operation here accounts for."""
    data_hidden: float
    """Share of data-parallel messages that computation hides, where there is enough of it."""
    attention: float
    """Speed of its attention kernels over those measured for their kind."""
    step_ms: float
    """Of every step besides, for each doubling of the devices: input, gradient norm, logging, waiting for the last."""
    error: float
    """Relative error that nine of ten published steps of this stack, not used for fitting, stay below; where there are
    few of it, of all stacks."""


@dataclass(frozen=True)
class CommonRates:
    """What holds for every machine."""

    matmul_fill: float
    """Depth K of a matrix product that takes as long as beginning and ending a tile."""
    matmul_fill_fp8: float
    """The same depth for a matrix product in FP8."""
    wave_waste: float
    """Share of the last wave's idle multiprocessors that is really lost."""
    kernel_gap_us: float
    """Between two kernels of a stream."""
    message_half_mb: float
    """Size at which an NVLink collective reaches half of its bandwidth, 10^6 bytes."""
    network_share: float
    """Of a card's rate that messages reach."""
    network_hop_us: float
    """Of a message from node to node."""
    jitter: float
    """Share by which each doubling of the devices slows all, which wait for the slowest at every exchange."""
    fp8_casts: float
    """Bytes of casting and transposing for products in FP8, over one pass over each input and result."""
    fp8_weight_casts: float
    """Share of micro-batches that cast the weights of products in FP8 anew; the others find them kept."""


@dataclass(frozen=True)
class Rates:
    """All that durations are computed from."""

    device: DeviceRates
    network_gb_s: float
    """Of one device's messages to other nodes, each way; 10^9 bytes/s."""
    stack: StackRates
    common: CommonRates


Section = TypeVar("Section", DeviceRates, StackRates, CommonRates)


def read_constants(path: Path = TABLE) -> dict[str, Constant]:
    """The table by dotted names such as ``accelerators.H100 SXM.matmul_bf16``."""
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
    """The table of this repository; not to be changed."""
    return read_constants()


def values_of(constants: Mapping[str, Constant]) -> dict[str, float]:
    return {name: constant.value for name, constant in constants.items()}


def rates(values: Mapping[str, float], accelerator: str, stack: str, *, network_gbit_s: float | None = None) -> Rates:
    """The constants of a step; ``network_gbit_s``: where it is not the table's.

    Raises InputError for a name that the table does not have, with those it has.
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
    """Accelerators or stacks in the table."""
    return list(dict.fromkeys(name.split(".", 1)[1].rsplit(".", 1)[0] for name in values if name.startswith(section)))
