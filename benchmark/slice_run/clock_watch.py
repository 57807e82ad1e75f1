"""Clocks and power of the GPUs while a slice runs, by NVML; nothing where there is none."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmark.machine.gpus import DeviceReading, Gpu, all_gpus
from stage.errors import InputError

INTERVAL_S = 0.5
BUSY_PERCENT = 50.0
"""GPUs that work less than this are not the slice's."""


@dataclass(frozen=True)
class Clocks:
    """Of the GPUs that worked, over the time the steps ran."""

    lowest_clock_mhz: float
    most_clock_mhz: float
    highest_power_w: float
    most_power_w: float
    highest_temperature_c: float


class ClockWatch:
    """Reads all GPUs every half second in a thread of its own, from its making until it is closed."""

    def __init__(self, gpus: Callable[[], Sequence[Gpu]] = all_gpus) -> None:
        self._gpus = gpus
        self._readings: list[tuple[float, DeviceReading]] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="clocks", daemon=True)
        self._thread.start()

    def close(self) -> list[tuple[float, DeviceReading]]:
        """Return all readings, each with its time in seconds since the epoch."""
        self._closing.set()
        self._thread.join()
        return self._readings

    def _watch(self) -> None:
        try:
            gpus = self._gpus()
        except InputError:
            return
        while not self._closing.is_set():
            self._readings += [(time.time(), gpu.read()) for gpu in gpus]
            self._closing.wait(INTERVAL_S)


def clocks_within(readings: Iterable[tuple[float, DeviceReading]], window_s: tuple[float, float]) -> Clocks | None:
    """None where no GPU was seen at work within the window."""
    begin, end = window_s
    seen = [
        one
        for at_s, one in readings
        if begin <= at_s <= end and one.busy_percent >= BUSY_PERCENT and not math.isnan(one.clock_mhz + one.power_w)
    ]
    if not seen:
        return None
    return Clocks(
        lowest_clock_mhz=min(one.clock_mhz for one in seen),
        most_clock_mhz=max(one.most_clock_mhz for one in seen),
        highest_power_w=max(one.power_w for one in seen),
        most_power_w=max(one.most_power_w for one in seen),
        highest_temperature_c=max(one.temperature_c for one in seen),
    )
