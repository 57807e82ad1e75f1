"""The clock that a run's events are stamped with: it never goes back, in none of the run's attempts."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClockMark:
    """What a checkpoint keeps of the clock."""

    began_ns: int
    """Nanoseconds since the epoch where the machine's ticks began, as the run's clock has it."""
    ticks_ns: int
    """The ticks when the mark was made."""
    boot: str
    """Of the machine, from one start of it to the next; empty where that is not known."""


class RunClock:
    """The time of day may be set while a run goes on, and while it stands still: on the same machine its time is what
    has passed by the machine's ticks. On another one it is the time of day, but for a clock that is behind."""

    def __init__(self, mark: ClockMark | None = None) -> None:
        """``mark``: of the checkpoint that the run goes on from."""
        ticks_ns, now_ns, self._boot = _ticks_ns(), time.time_ns(), this_boot()
        self.behind_s = 0.0
        """Seconds that this machine's clock is behind the mark: how long the run stood still is not known then."""
        if mark is None:
            self._began_ns = now_ns - ticks_ns
        elif self._boot and mark.boot == self._boot and mark.ticks_ns <= ticks_ns:
            self._began_ns = mark.began_ns
        else:
            marked_ns = mark.began_ns + mark.ticks_ns
            self._began_ns = max(now_ns, marked_ns) - ticks_ns
            self.behind_s = max(0.0, (marked_ns - now_ns) / 1e9)

    def time_ms(self) -> int:
        """Now, in milliseconds since the epoch."""
        return (self._began_ns + _ticks_ns()) // 1_000_000

    def mark(self) -> ClockMark:
        return ClockMark(self._began_ns, _ticks_ns(), self._boot)


def _ticks_ns() -> int:
    """A clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def this_boot() -> str:
    """Return what the system calls the time from one start of this machine to the next; empty where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
