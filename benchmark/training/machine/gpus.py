"""Ask for the GPUs of this machine through NVIDIA's library NVML (package nvidia-ml-py), and watch one during a run.

No other file asks NVML. Figures that a device, a driver or a version of the package does not report are unknown; only a
machine without NVML or without a GPU is an error. NVML can hang with the device that it is asked about, so a run takes
its readings in a separate thread.
"""

import contextlib
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import torch

from foundation.errors import InputError
from foundation.optional_packages import import_optional

REASONS = {
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown",
    0x80: "power brake",
}
"""Bits of NVML's reasons for lower clocks that mean a fault."""
POWER_CAP = 0x04
"""Bit of NVML's reasons for lower clocks that a working GPU often has: its power limit."""
MOST_LINKS = 18
LINK_SPEED = 90
"""NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: speed of each NVLink, in MB/s."""
UNKNOWN = math.nan
INTERVAL_S = 30.0
TOO_OLD_S = 300.0
"""Seconds after which a reading counts as none, because NVML hangs."""
MANY_CORRECTED = 1000
"""Corrected memory errors between two readings from which they are a fault; a few are harmless."""


@dataclass(frozen=True)
class DeviceReading:
    """State of a GPU at some moment; NaN for figures that the device does not report."""

    busy_percent: float = UNKNOWN
    clock_mhz: float = UNKNOWN
    """Clock of the multiprocessors."""
    most_clock_mhz: float = UNKNOWN
    power_w: float = UNKNOWN
    most_power_w: float = UNKNOWN
    """Power limit in force."""
    temperature_c: float = UNKNOWN
    reasons: float = UNKNOWN
    """NVML's bits of the reasons for lower clocks."""
    corrected: float = UNKNOWN
    """Corrected memory errors since the driver was loaded."""
    uncorrected: float = UNKNOWN
    remap_pending: float = UNKNOWN
    """1 if rows of memory are to be replaced at the next reset of the GPU."""
    remap_failed: float = UNKNOWN
    """1 if rows could not be replaced."""
    link_errors: float = UNKNOWN
    """NVLink replays, recoveries and checksum errors of all links since the driver was loaded."""

    def row(self) -> list[float]:
        """Return the figures, for :meth:`of_row` on another process; -1 stands for unknown ones."""
        return [-1.0 if math.isnan(figure) else figure for figure in astuple(self)]

    @staticmethod
    def of_row(row: Sequence[float]) -> "DeviceReading":
        return DeviceReading(*(UNKNOWN if figure < 0 else figure for figure in row))

    def is_known(self) -> bool:
        return any(figure >= 0 for figure in self.row())

    def line(self) -> str:
        """Return the figures that could explain slowness, for people; empty if none is known."""

        def of(limit: float) -> str:
            return "" if math.isnan(limit) else f" of {limit:,.0f}"

        parts = [] if math.isnan(self.clock_mhz) else [f"clocks {self.clock_mhz:,.0f}{of(self.most_clock_mhz)} MHz"]
        parts += self.slowdowns()
        parts += [] if not self._bits() & POWER_CAP else ["at its power limit"]
        parts += [] if math.isnan(self.temperature_c) else [f"{self.temperature_c:.0f} °C"]
        parts += [] if math.isnan(self.power_w) else [f"{self.power_w:.0f}{of(self.most_power_w)} W"]
        return ", ".join(parts)

    def slowdowns(self) -> list[str]:
        """Return the reasons for lower clocks that point to a fault."""
        return [name for bit, name in REASONS.items() if self._bits() & bit]

    def _bits(self) -> int:
        return 0 if math.isnan(self.reasons) else int(self.reasons)


FIGURES = len(fields(DeviceReading))
"""Number of figures in a row."""
TROUBLE = slice(6, FIGURES)
"""Figures of a row that show trouble: while they stay the same there is no new fault."""


class Gpu:
    """One GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def read(self) -> DeviceReading:
        """Take a reading. This takes some milliseconds, or for ever if NVML hangs."""
        busy, remapped = self._ask("nvmlDeviceGetUtilizationRates"), self._ask("nvmlDeviceGetRemappedRows")
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons")
        if math.isnan(reasons):  # its name in older drivers and packages
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons")
        return DeviceReading(
            busy_percent=UNKNOWN if busy is None else float(busy.gpu),
            clock_mhz=self._number("nvmlDeviceGetClockInfo", 1),
            most_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", 1),
            power_w=self._number("nvmlDeviceGetPowerUsage") / 1000,
            most_power_w=self._number("nvmlDeviceGetEnforcedPowerLimit") / 1000,
            temperature_c=self._number("nvmlDeviceGetTemperature", 0),
            reasons=reasons,
            corrected=self._number("nvmlDeviceGetTotalEccErrors", 0, 0),
            uncorrected=self._number("nvmlDeviceGetTotalEccErrors", 1, 0),
            remap_pending=UNKNOWN if remapped is None else float(remapped[2]),
            remap_failed=UNKNOWN if remapped is None else float(remapped[3]),
            link_errors=self._link_errors(),
        )

    def facts(self) -> dict[str, Any]:
        """Return the GPU's facts by name; NaN, None or 0 stands for unknown ones."""
        memory, speed = self._ask("nvmlDeviceGetMemoryInfo"), self._ask("nvmlDeviceGetFieldValues", [LINK_SPEED])
        generation, width = (self._number(f"nvmlDeviceGetMaxPcieLink{part}") for part in ("Generation", "Width"))
        return {
            "memory_mib": None if memory is None else memory.total / 2**20,
            "most_clock_mhz": self._number("nvmlDeviceGetMaxClockInfo", 1),
            "pcie": None if math.isnan(generation + width) else f"PCIe Gen{generation:.0f} x{width:.0f}",
            "nvlinks": len(self._links()),
            "gb_per_s_of_a_link": speed[0].value.uiVal / 1000 if speed and speed[0].nvmlReturn == 0 else None,
        }

    @property
    def name(self) -> str:
        return str(self._ask("nvmlDeviceGetName") or "unknown")

    def _links(self) -> list[int]:
        return [link for link in range(MOST_LINKS) if self._ask("nvmlDeviceGetNvLinkState", link)]

    def _link_errors(self) -> float:
        counts = [
            self._number("nvmlDeviceGetNvLinkErrorCounter", link, counter)
            for link in self._links()
            for counter in range(4)
        ]
        reported = [count for count in counts if not math.isnan(count)]
        return sum(reported) if reported else UNKNOWN

    def _number(self, name: str, *arguments: int) -> float:
        answer = self._ask(name, *arguments)
        return UNKNOWN if answer is None else float(answer)

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Ask NVML; return None for a function that this device, driver or package does not have."""
        with contextlib.suppress(self._nvml.NVMLError, AttributeError):
            return getattr(self._nvml, name)(self._handle, *arguments)
        return None


def all_gpus() -> list[Gpu]:
    """Return the GPUs of this machine. Raises InputError if nvidia-ml-py is missing, or if NVML finds no driver."""
    nvml = _nvml()
    return [Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(number)) for number in range(nvml.nvmlDeviceGetCount())]


def gpu_of(uuid: str | None, number: int) -> Gpu:
    """Return one GPU by its ``uuid`` from CUDA, which may number the devices in another order; without one, by its
    number.

    Raises InputError as :func:`all_gpus` does, and NVML's own error for a GPU that NVML does not have.
    """
    nvml = _nvml()
    by_number = nvml.nvmlDeviceGetHandleByIndex
    return Gpu(nvml, by_number(number) if uuid is None else nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))


def gpu_facts() -> dict[str, Any]:
    """Return facts about the GPUs by name: the number of each model, and the other facts of the first GPU.

    Unknown facts are left out; the result is empty without a GPU or without NVML.
    """
    try:
        gpus = all_gpus()
    except InputError:
        return {}
    if not gpus:
        return {}
    facts = {
        "driver": str(_nvml().nvmlSystemGetDriverVersion()),
        "models": dict(Counter(gpu.name for gpu in gpus)),
        **gpus[0].facts(),
        "now": [gpu.read().line() for gpu in gpus],
    }
    return {name: value for name, value in facts.items() if value and value == value}  # neither empty nor NaN


def _nvml() -> Any:
    nvml = import_optional("pynvml", "nvidia-ml-py", "asking the GPUs")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InputError(f"NVML finds no GPU: {error}; see that the driver is there") from error
    return nvml


def new_faults(previous: DeviceReading | None, current: DeviceReading) -> dict[str, str]:
    """Return the faults that the previous reading did not have, by kind; all faults without a previous reading."""
    baseline = previous or replace(current, uncorrected=0.0, remap_pending=0.0, remap_failed=0.0)
    previous_slowdowns = previous.slowdowns() if previous else []
    faults = {
        reason: f"{reason}: {current.line()}" for reason in current.slowdowns() if reason not in previous_slowdowns
    }
    if current.uncorrected > baseline.uncorrected:
        faults["uncorrected"] = f"{current.uncorrected - baseline.uncorrected:.0f} uncorrected memory errors"
    if current.corrected - baseline.corrected >= MANY_CORRECTED:
        faults["corrected"] = f"{current.corrected - baseline.corrected:,.0f} corrected memory errors in a short time"
    if current.remap_pending > baseline.remap_pending:
        faults["remap pending"] = "rows of its memory wait to be replaced; reset the GPU after the run"
    if current.remap_failed > baseline.remap_failed:
        faults["remap failed"] = "rows of its memory could not be replaced; have the GPU exchanged"
    if current.link_errors > baseline.link_errors:
        faults["links"] = f"{current.link_errors - baseline.link_errors:.0f} errors on its NVLinks"
    return faults


class DeviceHealth:
    """Watch that reads a device every ``interval_s`` seconds and keeps the newest readings; nobody waits for it.

    The thread calls ``connect``, which can hang, too, and which returns the function that reads the device.
    """

    def __init__(
        self, connect: Callable[[], Callable[[], DeviceReading]], interval_s: float = INTERVAL_S, keep: int = 1
    ) -> None:
        self.readings: deque[tuple[float, DeviceReading]] = deque(maxlen=keep)
        """Readings with their times on the monotonic clock, the newest last."""
        self._connect, self._interval_s, self._ended = connect, interval_s, threading.Event()
        threading.Thread(target=self._work, name="device health", daemon=True).start()

    def newest(self) -> DeviceReading | None:
        """Return the newest reading; None before the first, and while NVML hangs."""
        newest = self.readings[-1] if self.readings else None
        return newest[1] if newest is not None and time.monotonic() - newest[0] < TOO_OLD_S else None

    def close(self) -> None:
        self._ended.set()

    def _work(self) -> None:
        try:
            read_device = self._connect()
            while not self._ended.is_set():
                self.readings.append((time.monotonic(), read_device()))
                self._ended.wait(self._interval_s)
        except Exception:  # a run does without, whatever NVML says
            return


def own_gpu(device: torch.device) -> Gpu:
    """Return this process's GPU. Raises InputError if NVML does not answer for it."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return gpu_of(None if uuid is None else str(uuid), device.index or 0)


def watch_device(device: torch.device, interval_s: float = INTERVAL_S, keep: int = 1) -> DeviceHealth | None:
    """Return the watch of this process's GPU; None for a CPU."""
    return DeviceHealth(lambda: own_gpu(device).read, interval_s, keep) if device.type == "cuda" else None
