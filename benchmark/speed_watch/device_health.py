"""What a GPU says of itself while a run goes on: clocks, power, temperature, throttling, memory and link errors.

Read by NVIDIA's library NVML (package nvidia-ml-py) in a thread of its own, for NVML can hang with the device it is
asked about. ``preflight`` asks nvidia-smi instead: once, before a run, where only the driver's tools may be.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

from stage.optional_packages import import_optional

INTERVAL_S = 30.0
TOO_OLD_S = 300.0
"""A reading older than this is none: NVML hangs."""
REASONS = {
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown",
    0x80: "power brake",
}
"""Bits of NVML's reasons for lower clocks that mean something is wrong …"""
POWER_CAP = 0x04
"""… and one that a GPU at work often has."""
MANY_CORRECTED = 1000
"""Corrected memory errors between two readings; a few are nothing."""
MOST_LINKS = 18
UNKNOWN = math.nan


@dataclass(frozen=True)
class DeviceReading:
    """NaN where the device does not say."""

    clock_mhz: float = UNKNOWN
    """Of the multiprocessors."""
    most_clock_mhz: float = UNKNOWN
    power_w: float = UNKNOWN
    most_power_w: float = UNKNOWN
    """The limit that is in force."""
    temperature_c: float = UNKNOWN
    reasons: float = UNKNOWN
    """For lower clocks: NVML's bits."""
    corrected: float = UNKNOWN
    """Memory errors since the driver was loaded."""
    uncorrected: float = UNKNOWN
    remap_pending: float = UNKNOWN
    """1: rows of memory wait for a reset of the GPU to be replaced."""
    remap_failed: float = UNKNOWN
    """1: rows could not be replaced."""
    link_errors: float = UNKNOWN
    """NVLink replays, recoveries and checksum errors of all links, since the driver was loaded."""

    def row(self) -> list[float]:
        """Its figures, for :meth:`of_row` on another process; -1 for what is not known."""
        return [-1.0 if math.isnan(figure) else figure for figure in astuple(self)]

    @staticmethod
    def of_row(row: Sequence[float]) -> "DeviceReading":
        return DeviceReading(*(UNKNOWN if figure < 0 else figure for figure in row))

    def is_known(self) -> bool:
        return any(figure >= 0 for figure in self.row())

    def line(self) -> str:
        """For people: what could explain that it is slow; empty where nothing is known."""
        parts = []
        if not math.isnan(self.clock_mhz):
            of = "" if math.isnan(self.most_clock_mhz) else f" of {self.most_clock_mhz:,.0f}"
            parts.append(f"clocks {self.clock_mhz:,.0f}{of} MHz")
        parts += self.slowdowns()
        if not math.isnan(self.reasons) and int(self.reasons) & POWER_CAP:
            parts.append("at its power limit")
        if not math.isnan(self.temperature_c):
            parts.append(f"{self.temperature_c:.0f} °C")
        if not math.isnan(self.power_w):
            of = "" if math.isnan(self.most_power_w) else f" of {self.most_power_w:.0f}"
            parts.append(f"{self.power_w:.0f}{of} W")
        return ", ".join(parts)

    def slowdowns(self) -> list[str]:
        """Reasons for lower clocks that should not be."""
        bits = 0 if math.isnan(self.reasons) else int(self.reasons)
        return [name for bit, name in REASONS.items() if bits & bit]


FIGURES = len(fields(DeviceReading))
"""Length of a row."""
TROUBLE = slice(5, FIGURES)
"""Where in a row the figures are that tell of trouble: as long as they stay, nothing turned bad."""


def turned_bad(before: DeviceReading | None, now: DeviceReading) -> dict[str, str]:
    """What is wrong now that was not in the reading before, by its kind; all that is wrong where there was none."""
    start = before or replace(now, uncorrected=0.0, remap_pending=0.0, remap_failed=0.0)
    had = before.slowdowns() if before else []
    found = {reason: f"{reason}: {now.line()}" for reason in now.slowdowns() if reason not in had}
    if now.uncorrected > start.uncorrected:
        found["uncorrected"] = f"{now.uncorrected - start.uncorrected:.0f} uncorrected memory errors"
    if now.corrected - start.corrected >= MANY_CORRECTED:
        found["corrected"] = f"{now.corrected - start.corrected:,.0f} corrected memory errors in a short time"
    if now.remap_pending > start.remap_pending:
        found["remap pending"] = "rows of its memory wait to be replaced; reset the GPU after the run"
    if now.remap_failed > start.remap_failed:
        found["remap failed"] = "rows of its memory could not be replaced; have the GPU exchanged"
    if now.link_errors > start.link_errors:
        found["links"] = f"{now.link_errors - start.link_errors:.0f} errors on its NVLinks"
    return found


class NvmlDevice:
    """One GPU by NVML. Raises InputError where nvidia-ml-py is not installed, NVML's own error for a GPU it has not.

    ``uuid``: as CUDA has it, for the order of devices is another one there; None: by its number.
    """

    def __init__(self, uuid: str | None, number: int) -> None:
        self._nvml = nvml = import_optional("pynvml", "nvidia-ml-py", "watching the health of the GPUs")
        nvml.nvmlInit()
        by_uuid = None if uuid is None else f"GPU-{uuid}"
        self._handle = nvml.nvmlDeviceGetHandleByUUID(by_uuid) if by_uuid else nvml.nvmlDeviceGetHandleByIndex(number)

    def read(self) -> DeviceReading:
        """Takes some milliseconds, or for ever."""
        remapped = self._ask("nvmlDeviceGetRemappedRows")
        power, most_power = self._number("nvmlDeviceGetPowerUsage"), self._number("nvmlDeviceGetEnforcedPowerLimit")
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons")
        if math.isnan(reasons):  # its name in older drivers and packages
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons")
        return DeviceReading(
            clock_mhz=self._number("nvmlDeviceGetClockInfo", 1),
            most_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", 1),
            power_w=power / 1000,
            most_power_w=most_power / 1000,
            temperature_c=self._number("nvmlDeviceGetTemperature", 0),
            reasons=reasons,
            corrected=self._number("nvmlDeviceGetTotalEccErrors", 0, 0),
            uncorrected=self._number("nvmlDeviceGetTotalEccErrors", 1, 0),
            remap_pending=UNKNOWN if remapped is None else float(remapped[2]),
            remap_failed=UNKNOWN if remapped is None else float(remapped[3]),
            link_errors=self._link_errors(),
        )

    def _link_errors(self) -> float:
        counts = [
            self._number("nvmlDeviceGetNvLinkErrorCounter", link, counter)
            for link in range(MOST_LINKS)
            if self._ask("nvmlDeviceGetNvLinkState", link)
            for counter in range(4)
        ]
        known = [count for count in counts if not math.isnan(count)]
        return sum(known) if known else UNKNOWN

    def _number(self, name: str, *arguments: int) -> float:
        found = self._ask(name, *arguments)
        return UNKNOWN if found is None else float(found)

    def _ask(self, name: str, *arguments: int) -> Any:
        """None for what this device, driver or package does not have."""
        with contextlib.suppress(self._nvml.NVMLError, AttributeError):
            return getattr(self._nvml, name)(self._handle, *arguments)
        return None


class DeviceHealth:
    """Reads a device every ``interval_s`` seconds, for whoever asks for the newest reading; never waits for it."""

    def __init__(self, connect: Callable[[], Callable[[], DeviceReading]], *, interval_s: float = INTERVAL_S) -> None:
        """``connect`` is called in the thread, for it can hang, too; what it gives reads the device."""
        self._connect, self._interval_s = connect, interval_s
        self._ended = threading.Event()
        self._newest: tuple[float, DeviceReading] | None = None
        self.problem: str | None = None
        """Why there are no readings."""
        threading.Thread(target=self._work, name="device health", daemon=True).start()

    def newest(self) -> DeviceReading | None:
        """None before the first, and where NVML hangs."""
        newest = self._newest
        return newest[1] if newest is not None and time.monotonic() - newest[0] < TOO_OLD_S else None

    def close(self) -> None:
        self._ended.set()

    def _work(self) -> None:
        try:
            read = self._connect()
            while not self._ended.is_set():
                self._newest = time.monotonic(), read()
                self._ended.wait(self._interval_s)
        except Exception as error:  # a run does without
            self.problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
