"""Watch a GPU's health during a run. A separate thread takes the readings, because NVML can hang."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import torch

from benchmark.machine.gpus import DeviceReading, Gpu, gpu_of

INTERVAL_S = 30.0
TOO_OLD_S = 300.0
"""Seconds after which a reading counts as none, because NVML hangs."""
MANY_CORRECTED = 1000
"""Corrected memory errors between two readings from which they are a fault; a few are harmless."""


def turned_bad(before: DeviceReading | None, now: DeviceReading) -> dict[str, str]:
    """Return the faults that the earlier reading did not have, by kind; all faults if there was no earlier reading."""
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
            read = self._connect()
            while not self._ended.is_set():
                self.readings.append((time.monotonic(), read()))
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
