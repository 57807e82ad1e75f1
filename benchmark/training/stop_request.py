"""When a run is asked to stop: by a signal, or by its time limit."""

import os
import signal
import time
from pathlib import Path


class StopRequest:
    """Whether this process was asked to stop: by SIGTERM, as Slurm sends it, or by the time limit."""

    def __init__(self, time_limit_s: float | None) -> None:
        self._asked = False
        self._time_limit_s = time_limit_s

    def requested(self) -> bool:
        late = self._time_limit_s is not None and seconds_since_process_start() > self._time_limit_s
        return self._asked or late

    def __enter__(self) -> "StopRequest":
        self._before = signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_asked", True))
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)


def seconds_since_process_start() -> float:
    """Seconds since the operating system started this process, imports included (Linux)."""
    started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
