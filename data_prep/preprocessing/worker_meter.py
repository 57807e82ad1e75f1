"""What worker processes tell of their work: bytes done, and what the time went into."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from stage.progress import Meter

READING = "reading and decompressing"
TOKENISING = "tokenising"
DOING = (READING, TOKENISING)

Item = TypeVar("Item")


class Tell(Protocol):
    """What work tells of itself; a Meter is one, and what workers share is one."""

    def __call__(self, amount: float) -> None: ...

    def spent(self, doing: str, seconds: float) -> None: ...


class WorkerMeter:
    """Numbers in memory that processes forked from this one share."""

    def __init__(self, context: Any) -> None:
        """``context``: of multiprocessing, whose processes are forked."""
        self._done = context.Value("q", 0)
        self._spent = context.Array("d", len(DOING))
        self._passed_on = [0.0] * (1 + len(DOING))

    def __call__(self, amount: float) -> None:
        with self._done.get_lock():
            self._done.value += int(amount)

    def spent(self, doing: str, seconds: float) -> None:
        with self._spent.get_lock():
            self._spent[DOING.index(doing)] += seconds

    def pass_on(self, meter: Meter) -> None:
        """Tell ``meter`` what is new since the last time."""
        now = [float(self._done.value), *self._spent[:]]
        for doing, seconds, before in zip(DOING, now[1:], self._passed_on[1:], strict=True):
            meter.spent(doing, seconds - before)
        meter(now[0] - self._passed_on[0])
        self._passed_on = now


def timed(items: Iterable[Item], doing: str, tell: Tell) -> Iterator[Item]:
    """The items; the time that each takes to come is told as spent ``doing``."""
    iterator = iter(items)
    while True:
        started = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        tell.spent(doing, time.perf_counter() - started)
        yield item
