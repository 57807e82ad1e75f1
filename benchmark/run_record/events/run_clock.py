"""The clock that a run's events are stamped with: it never goes back, in any of the run's attempts."""

import time
from dataclasses import dataclass

from benchmark.run_record.events.lone_process import this_boot

BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux' clock that goes on while the machine sleeps; on macOS CLOCK_MONOTONIC does."""


@dataclass(frozen=True)
class ClockMark:
    """The state of the clock that a checkpoint stores."""

    began_ns: int
    """Time by the run's clock at which the machine's ticks began, in nanoseconds since the epoch."""
    ticks_ns: int
    """The machine's ticks when the mark was made."""
    boot: str
    """Identity of the machine's current start; empty if it is not known."""


class RunClock:
    """The time of a run, which stays monotonic when the time of day is set while the run goes on or stands still.

    On the same machine it advances by the machine's ticks. On another machine it is that machine's time of day, or the
    checkpoint's time if the machine's clock is behind.
    """

    def __init__(self, mark: ClockMark | None = None) -> None:
        """``mark``: the mark in the checkpoint that the run goes on from."""
        ticks_ns, now_ns, self._boot = _ticks_ns(), time.time_ns(), this_boot()
        self.behind_s = 0.0
        """Seconds that this machine's clock is behind the mark; the time that the run stood still is then unknown."""
        if mark is None:
            self._began_ns = now_ns - ticks_ns
        elif self._boot and mark.boot == self._boot and mark.ticks_ns <= ticks_ns:
            self._began_ns = mark.began_ns
        else:
            marked_ns = mark.began_ns + mark.ticks_ns
            self._began_ns = max(now_ns, marked_ns) - ticks_ns
            self.behind_s = max(0.0, (marked_ns - now_ns) / 1e9)

    def time_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return (self._began_ns + _ticks_ns()) // 1_000_000

    def mark(self) -> ClockMark:
        return ClockMark(self._began_ns, _ticks_ns(), self._boot)


def _ticks_ns() -> int:
    """Return the ticks of a clock that nobody sets and that goes on while the machine sleeps."""
    return time.clock_gettime_ns(BOOT_CLOCK)
