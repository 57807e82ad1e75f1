"""The signs of life of one process, in memory shared with its watchdog.

A beat is a few numbers in shared memory: writing one takes microseconds, waits for nobody and touches no disk.
"""

import mmap
import os
import struct
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from statistics import median

from benchmark.run_record.phases import PHASES, Phase

FORMAT = struct.Struct("<qqdd")
"""Format of a beat: number of the phase, LEFT at the end; steps done, -1 before the state is there; monotonic time in
s; limit in s."""
ASKED = FORMAT.size
"""Offset of a byte that the watchdog sets to ask the process which collective it waits for."""
SIZE = FORMAT.size + 1
LEFT = -1
STEP: tuple[Phase, ...] = ("data", "passes", "update")
ONCE: tuple[Phase, ...] = ("start", "join", "load", "warm-up", "end")
"""Phases of work that is done once. A process that has ended waits for rank 0, whose disk may be away."""
TIMES_MEDIAN = 10
KEPT = 101


@dataclass(frozen=True)
class HangLimits:
    """Seconds that a process may be silent."""

    start_s: float
    """Limit for work done once or for the first time: joining, loading, the first step, evaluation, audit, save."""
    floor_s: float
    """Least limit for any phase; the limit is ten times the phase's usual duration if that is longer."""


def _shared_memory() -> int:
    """Return the descriptor of memory without a name; of a file that has none where the system has no such memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("heartbeat")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Heartbeat:
    """Beat whenever the process enters a phase (``PhaseObserver``), and store how long that phase may take."""

    def __init__(self, limits: HangLimits) -> None:
        self._limits = limits
        self.handle = _shared_memory()
        """File descriptor of the memory, for the watchdog."""
        os.ftruncate(self.handle, SIZE)
        self._memory = mmap.mmap(self.handle, SIZE)
        self._seconds: dict[str, deque[float]] = {}
        """Latest durations by span: a step, or another phase."""
        self._span, self._span_began = "start", time.monotonic()
        self.phase: Phase = "start"
        self.steps: int | None = None
        """Optimizer steps done; None before the state is there."""
        self._write(PHASES.index("start"), -1, limits.start_s)

    def enter(self, phase: Phase, steps: int) -> None:
        """Beat for ``phase``; ``steps`` below 0 means that the number is not known yet."""
        span = "step" if phase in STEP else phase
        if span != self._span or phase == STEP[0]:
            now = time.monotonic()
            self._seconds.setdefault(self._span, deque(maxlen=KEPT)).append(now - self._span_began)
            self._span, self._span_began = span, now
        self.phase, self.steps = phase, steps if steps >= 0 else None
        self._write(PHASES.index(phase), steps, self._limit_s(span))

    def leave(self) -> None:
        """Say that the process ends by itself, and has reported any failure."""
        self._write(LEFT, -1, self._limits.start_s)

    def is_asked(self) -> bool:
        """Return whether the watchdog asks what this process waits for."""
        return self._memory[ASKED] != 0

    def _limit_s(self, span: str) -> float:
        seconds = self._seconds.get(span)
        if span in ONCE or not seconds:
            return self._limits.start_s
        return max(self._limits.floor_s, TIMES_MEDIAN * median(seconds))

    def _write(self, phase: int, steps: int, limit_s: float) -> None:
        FORMAT.pack_into(self._memory, 0, phase, steps, time.monotonic(), limit_s)


@dataclass(frozen=True)
class Beat:
    """The latest beat of a process."""

    phase: Phase | None
    """Current phase; None if the process has left."""
    steps: int | None
    silent_s: float
    """Seconds since that beat."""
    limit_s: float


def ask(memory: mmap.mmap) -> None:
    """Ask the process to write the collectives that it waits in."""
    memory[ASKED] = 1


def latest_beat(memory: mmap.mmap) -> Beat:
    phase, steps, beaten_s, limit_s = FORMAT.unpack_from(memory, 0)
    is_phase = 0 <= phase < len(PHASES)
    silent_s = time.monotonic() - beaten_s
    return Beat(PHASES[phase] if is_phase else None, steps if steps >= 0 else None, silent_s, limit_s)
