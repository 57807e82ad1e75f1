"""Constants of accelerators and codes in one table: a value, a plausible range and a source.

``machine_constants.toml`` is the table. Constants fitted to published steps are marked (tests/backtest/).
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from foundation.errors import InputError

TABLE = Path(__file__).with_name("machine_constants.toml")


class Constant(float):
    """A figure of the table, which computations use as a number."""

    low: float
    high: float
    """Upper end of the plausible range."""
    source: str
    fitted: bool
    """True if the value was chosen so that published steps come out right."""
    backed: bool
    """True if published steps that were not used for fitting depend on the constant: their error covers its own."""

    def __new__(
        cls, value: float, low: float, high: float, source: str, fitted: bool = False, backed: bool = False
    ) -> "Constant":
        constant = super().__new__(cls, value)
        constant.low, constant.high, constant.source = low, high, source
        constant.fitted, constant.backed = fitted, backed
        return constant

    def scaled(self, factor: float, source: str) -> "Constant":
        """Return the constant and its range times ``factor``."""
        return Constant(self * factor, self.low * factor, self.high * factor, source, self.fitted, self.backed)


@dataclass(frozen=True)
class DeviceRates:
    """Rates of an accelerator, as steps see them."""

    matmul_bf16: Constant
    """10^12 FLOP/s of endless matrix products under training's power limit, not the peak."""
    matmul_fp8: Constant
    attention_forward: Constant
    """10^12 FLOP/s of FlashAttention 2 on long sequences; only work below the diagonal counts."""
    attention_backward: Constant
    memory_tb_s: Constant
    """10^12 bytes/s of elementwise kernels."""
    multiprocessors: Constant
    nvlink_gb_s: Constant
    """10^9 bytes/s of an all-gather within a node: its larger side x (n - 1) / n over its time."""
    nvlink_latency_us: Constant
    network_gbit_s: Constant
    """Gbit/s of one device's card to other nodes, each way, as usually built; a workload may override it."""


@dataclass(frozen=True)
class StackRates:
    """Rates of a code: shares that it hides and loses, between 0 and 1."""

    tensor_hidden: Constant
    """Share of tensor-parallel messages that matrix products hide if there are enough products."""
    overlap_slowdown: Constant
    """Computation lost while messages travel beside it, over the messages' time; at 1 nothing is hidden."""
    elementwise: Constant
    """Bytes of the elementwise kernels over those of fully fused kernels."""
    host_ms_per_block: Constant
    """Milliseconds that the host takes to launch a block's forward and backward pass; no pass is shorter."""
    losses: Constant
    """Share of a pass's time that no modelled operation accounts for."""
    data_hidden: Constant
    """Share of data-parallel messages that computation hides if there is enough computation."""
    attention: Constant
    """Speed of the code's attention kernels over the speed measured for their kind."""
    jitter_bf16: Constant
    """Share by which each doubling of the devices slows all of them, because they wait for the slowest at every
    exchange."""
    jitter_fp8: Constant
    """The same of steps in FP8."""
    step_ms: Constant
    """Milliseconds added to every step for each doubling of the devices: input, gradient norm, logging, waiting for the
    slowest."""
    error_bf16: Constant
    """Relative error that nine of ten published BF16 steps of this stack stay below if the constants are fitted without
    their model; with few such steps, at least that of all stacks."""
    error_fp8: Constant
    """The same of steps in FP8."""


@dataclass(frozen=True)
class CommonRates:
    """Rates that hold for every machine."""

    matmul_fill: Constant
    """Depth K of a matrix product that takes as long as the beginning and end of a tile."""
    matmul_fill_fp8: Constant
    """The same depth for a matrix product in FP8."""
    wave_waste: Constant
    """Share of the last wave's idle multiprocessor time that is really lost."""
    kernel_gap_us: Constant
    """Microseconds between two kernels of a stream."""
    message_half_mb: Constant
    """Size at which an NVLink collective reaches half of its bandwidth, 10^6 bytes."""
    network_share: Constant
    """Share of a card's rate that messages reach."""
    network_hop_us: Constant
    """Microseconds of a message from node to node."""
    fp8_casts: Constant
    """Bytes of casting and transposing for products in FP8, over the bytes of one pass over each input and result."""
    fp8_weight_casts: Constant
    """Share of micro-batches that cast the weights of FP8 products again; the others reuse the cast weights."""
    byte_transposes: Constant
    """Time of a compiled kernel that writes a transpose of one-byte numbers, over that of its bytes at the memory's
    rate."""


Section = TypeVar("Section", DeviceRates, StackRates, CommonRates)


@dataclass(frozen=True)
class Rates:
    """The constants of one accelerator and one code, from which durations are computed."""

    accelerator: str
    stack_name: str
    device: DeviceRates
    network_gbit_s: float
    """Gbit/s of one device's card to other nodes, each way."""
    stack: StackRates
    common: CommonRates

    @property
    def network_gb_s(self) -> float:
        """10^9 bytes/s of one device's messages to other nodes, each way."""
        return self.network_gbit_s / 8 * self.common.network_share

    @property
    def constants(self) -> Iterator[tuple[str, Constant]]:
        """Yield the constants by their names in the table, such as ``accelerators.H100 SXM.matmul_bf16``."""
        for prefix, section in self._sections.items():
            for field in dataclasses.fields(section):
                yield f"{prefix}.{field.name}", getattr(section, field.name)

    def error(self, *, fp8: bool) -> Constant:
        """Return the relative error of nine of ten published steps, by number format."""
        return self.stack.error_fp8 if fp8 else self.stack.error_bf16

    def jitter(self, *, fp8: bool) -> Constant:
        """Return the share that each doubling of the devices costs, by number format."""
        return self.stack.jitter_fp8 if fp8 else self.stack.jitter_bf16

    def changed(self, constants: Mapping[str, Constant]) -> "Rates":
        """Return the rates with other constants, by their names in the table."""
        sections: dict[str, Any] = dict(self._sections)
        for name, constant in constants.items():
            prefix, _, field = name.rpartition(".")
            sections[prefix] = dataclasses.replace(sections[prefix], **{field: constant})
        common, device, stack = sections.values()
        return dataclasses.replace(self, common=common, device=device, stack=stack)

    @property
    def _sections(self) -> dict[str, CommonRates | DeviceRates | StackRates]:
        return {
            "common": self.common,
            f"accelerators.{self.accelerator}": self.device,
            f"stacks.{self.stack_name}": self.stack,
        }


@dataclass(frozen=True)
class MachineConstants:
    """The table."""

    accelerators: Mapping[str, DeviceRates]
    stacks: Mapping[str, StackRates]
    common: CommonRates

    def rates(self, accelerator: str, stack: str, *, network_gbit_s: float | None = None) -> Rates:
        """Return the constants of a step; ``network_gbit_s`` replaces the table's value.

        Raises InputError for a name that is not in the table, listing the names that are.
        """
        for kind, name, names in (("accelerators", accelerator, self.accelerators), ("stacks", stack, self.stacks)):
            if name not in names:
                listed = ", ".join(names)
                raise InputError(f"no constants of {kind} {name!r}; there are {listed} (step_model/{TABLE.name})")
        device = self.accelerators[accelerator]
        network = device.network_gbit_s if network_gbit_s is None else network_gbit_s
        return Rates(accelerator, stack, device, network, self.stacks[stack], self.common)


def read_constants(*paths: Path) -> MachineConstants:
    """Read the table from one file or several."""
    tables = [tomllib.loads(path.read_text()) for path in paths]

    def sections(kind: str, section: type[Section]) -> dict[str, Section]:
        return {
            name: section(**{key: Constant(**entry) for key, entry in entries.items()})
            for table in tables
            for name, entries in table.get(kind, {}).items()
        }

    common = {key: Constant(**entry) for table in tables for key, entry in table.get("common", {}).items()}
    return MachineConstants(
        sections("accelerators", DeviceRates), sections("stacks", StackRates), CommonRates(**common)
    )


@cache
def committed_constants() -> MachineConstants:
    """Return the table of this repository."""
    return read_constants(TABLE)
