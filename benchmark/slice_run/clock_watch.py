"""Clocks and power of the GPUs while a slice runs, by nvidia-smi; nothing where there is none."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmark.machine.hardware import ask

QUERY = "utilization.gpu,clocks.sm,clocks.max.sm,power.draw,power.limit,temperature.gpu"
INTERVAL_S = 0.5
BUSY_PERCENT = 50.0
"""GPUs that work less than this are not the slice's."""


@dataclass(frozen=True)
class ClockReading:
    """Of one GPU."""

    at_s: float
    """Since the epoch."""
    busy_percent: float
    clock_mhz: float
    most_clock_mhz: float
    power_w: float
    most_power_w: float
    temperature_c: float


@dataclass(frozen=True)
class Clocks:
    """Of the GPUs that worked, over the time the steps ran."""

    lowest_clock_mhz: float
    most_clock_mhz: float
    highest_power_w: float
    most_power_w: float
    highest_temperature_c: float


class ClockWatch:
    """Asks every half second in a thread of its own, from its making until it is closed."""

    def __init__(self, query: Callable[[], str] | None = None) -> None:
        self._query = query or _nvidia_smi
        self._readings: list[ClockReading] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="clocks", daemon=True)
        self._thread.start()

    def close(self) -> list[ClockReading]:
        """All readings."""
        self._closing.set()
        self._thread.join()
        return self._readings

    def _watch(self) -> None:
        while True:
            readings = parsed(self._query(), time.time())
            if not readings:
                return
            self._readings += readings
            if self._closing.wait(INTERVAL_S):
                return


def _nvidia_smi() -> str:
    return ask("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")


def parsed(answer: str, at_s: float) -> list[ClockReading]:
    """One reading for each line of nvidia-smi's answer that has all its figures."""
    readings = []
    for line in answer.splitlines():
        try:
            readings.append(ClockReading(at_s, *map(float, line.split(","))))
        except (ValueError, TypeError):  # "[N/A]", or an error's text
            continue
    return readings


def clocks_within(readings: Iterable[ClockReading], window_s: tuple[float, float]) -> Clocks | None:
    """None where no GPU was seen at work within the window."""
    begin, end = window_s
    seen = [one for one in readings if begin <= one.at_s <= end and one.busy_percent >= BUSY_PERCENT]
    if not seen:
        return None
    return Clocks(
        lowest_clock_mhz=min(one.clock_mhz for one in seen),
        most_clock_mhz=max(one.most_clock_mhz for one in seen),
        highest_power_w=max(one.power_w for one in seen),
        most_power_w=max(one.most_power_w for one in seen),
        highest_temperature_c=max(one.temperature_c for one in seen),
    )
