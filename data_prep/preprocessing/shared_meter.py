"""The progress of several worker processes, in memory that they share."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

from stage.progress import Meter

FORK = multiprocessing.get_context("fork")
DOING = ("reading and decompressing", "tokenising")


class Stopped(Exception):
    """Another worker has failed."""


class SharedMeter:
    """Add up the work of processes that are forked after the meter was made."""

    def __init__(self) -> None:
        self._sums = FORK.Array("d", 1 + len(DOING))
        """Bytes done so far, and the seconds of each of DOING."""
        self._told = [0.0] * len(self._sums)
        self.stop = FORK.Event()

    def __call__(self, amount: float) -> None:
        """Count ``amount`` more bytes as done. Raises Stopped if the work must end."""
        if self.stop.is_set():
            raise Stopped
        self._add(0, amount)

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Add the time that the block takes; ``what`` is one of DOING."""
        started = time.perf_counter()
        yield
        self._add(1 + DOING.index(what), time.perf_counter() - started)

    def _add(self, place: int, amount: float) -> None:
        with self._sums.get_lock():
            self._sums[place] += amount

    def tell(self, meter: Meter) -> None:
        """Report to ``meter`` the progress since the last call."""
        now = self._sums[:]
        done, *seconds = (new - old for new, old in zip(now, self._told, strict=True))
        for what, passed in zip(DOING, seconds, strict=True):
            meter.spent(what, passed)
        meter(done)
        self._told = now
