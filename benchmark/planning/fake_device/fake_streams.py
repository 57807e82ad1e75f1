"""Streams and events that order nothing but remember which collectives had to be done before which work.

A collective begins when it is called and is waited for where the compute stream needs it. Work queued in between can
hide the collective. Its time is not known here; the plan computes it.
"""

import itertools
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any


class FakeStream:
    """Replace ``torch.cuda.Stream`` with the methods that training uses."""

    def __init__(self, order: "StreamOrder", number: int) -> None:
        self._order, self.cuda_stream = order, number
        self.after: set[int] = set()
        """Collectives that must be done before the next work queued on this stream."""

    def wait_event(self, event: "FakeEvent") -> None:
        self._order.arrive(self, event.after)

    def wait_stream(self, other: "FakeStream") -> None:
        self._order.arrive(self, other.after)

    def record_event(self, event: "FakeEvent | None" = None) -> "FakeEvent":
        event = event or FakeEvent(self._order)
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self._order.host_waits("Stream.synchronize")

    def __enter__(self) -> "FakeStream":
        self._order.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._order.leave()


class FakeEvent:
    """Replace ``torch.cuda.Event`` with the methods that training uses."""

    def __init__(self, order: "StreamOrder") -> None:
        self._order = order
        self.after: frozenset[int] = frozenset()

    def record(self, stream: FakeStream | None = None) -> None:
        self.after = self._order.unfinished((stream or self._order.current).after)

    def wait(self, stream: FakeStream | None = None) -> None:
        self._order.arrive(stream or self._order.current, self.after)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self._order.host_waits("Event.synchronize")

    def elapsed_time(self, _: "FakeEvent") -> float:
        return 0.0


class StreamOrder:
    """The streams of one device. It calls ``host_waits`` when the host waits for one of the streams."""

    def __init__(self, host_waits: Callable[[str], None]) -> None:
        self.host_waits = host_waits
        self._numbers = itertools.count()
        self.compute = self.new_stream()
        self._entered = [self.compute]
        self.queued_flops = 0
        """FLOPs queued on the compute stream so far."""
        self._collectives = itertools.count()
        self._launched: dict[int, tuple[Callable[[int], None], int]] = {}
        self._by_work: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self._without_work: list[int] = []

    @property
    def current(self) -> FakeStream:
        return self._entered[-1]

    def new_stream(self) -> FakeStream:
        return FakeStream(self, next(self._numbers))

    def enter(self, stream: FakeStream) -> None:
        self._entered.append(stream)

    def leave(self) -> None:
        self._entered.pop()

    def set_current(self, stream: FakeStream) -> None:
        self._entered[-1] = stream

    def queue(self, flops: int) -> None:
        """Queue a matrix product or attention on the current stream."""
        if self.current is self.compute:
            self.queued_flops += flops

    def launch(self, waited: Callable[[int], None]) -> None:
        """Begin a collective. ``waited`` is called with the FLOPs that the compute stream queues until it waits."""
        number = next(self._collectives)
        self._launched[number] = waited, self.queued_flops
        self._without_work.append(number)

    def handed_out(self, work: Any) -> None:
        """Note that the caller got the handle ``work`` for the collectives begun since the last call."""
        if self._without_work:
            self._by_work[work] = self._without_work
            self._without_work = []

    def wait_for(self, work: Any) -> None:
        """Let the current stream wait for ``work``."""
        self.arrive(self.current, self._by_work.pop(work, ()))

    def arrive(self, stream: FakeStream, collectives: Iterable[int]) -> None:
        """Let ``stream`` continue only after ``collectives``."""
        if stream is not self.compute:
            stream.after = {*self.unfinished(stream.after), *collectives}
            return
        for number in list(collectives):
            if number in self._launched:
                waited, then = self._launched.pop(number)
                waited(self.queued_flops - then)

    def unfinished(self, collectives: Iterable[int]) -> frozenset[int]:
        """Return those of ``collectives`` that the compute stream has not waited for."""
        return frozenset(number for number in collectives if number in self._launched)

    def forget(self) -> None:
        """Forget the collectives begun so far; nobody asks for them any more."""
        self._launched.clear()
