"""Events and their sinks. Only rank 0 has sinks; on the other ranks an :class:`EventLog` is silent."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.run_record.events.background_sink import CLOSE_S, Background
from benchmark.run_record.events.event import Event, EventKind, Sink
from benchmark.run_record.events.run_clock import RunClock
from foundation.git import REPOSITORY


class EventLog:
    """Send events to every sink, each in a thread of its own: neither an error nor a slow disk reaches the caller."""

    def __init__(self, sinks: Sequence[Sink] = (), clock: RunClock | None = None) -> None:
        """``clock`` is that of a run that is continued."""
        self._sinks = tuple(Background(sink) for sink in sinks)
        self.clock = clock or RunClock()

    def point(self, key: str, value: Any = None, **metadata: Any) -> None:
        self._emit(key, "POINT_IN_TIME", value, metadata, True)

    def start(self, key: str, **metadata: Any) -> None:
        self._emit(key, "INTERVAL_START", None, metadata, True)

    def end(self, key: str, **metadata: Any) -> None:
        self._emit(key, "INTERVAL_END", None, metadata, True)

    def note(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Report an event for people and reports, not for the MLPerf log."""
        self._emit(key, "POINT_IN_TIME", value, metadata, False)

    def warn(self, text: str) -> None:
        """Report a failure to people, in one line."""
        self._emit("message", "POINT_IN_TIME", text, {"wrong": True}, False)

    def pending(self, sink: Sink) -> tuple[Event, ...]:
        """Return the events that ``sink`` has not taken yet, the oldest first."""
        return tuple(event for entry in self._sinks if entry.sink is sink for event in entry.pending())

    def drain(self, sink: Sink, patience_s: float = CLOSE_S) -> bool:
        """Wait until ``sink`` has every event, even while it fails; return whether it has them all and lost none."""
        return all(entry.drain(patience_s) for entry in self._sinks if entry.sink is sink)

    def time_ms(self) -> int:
        """Return the time by the clock that events are stamped with, in milliseconds since the epoch."""
        return self.clock.time_ms()

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()

    def _emit(self, key: str, kind: EventKind, value: Any, metadata: Mapping[str, Any], mlperf: bool) -> None:
        if not self._sinks:
            return
        caller = sys._getframe(2)
        file = Path(caller.f_code.co_filename)
        if file.is_relative_to(REPOSITORY):
            file = file.relative_to(REPOSITORY)
        event = Event(key, kind, value, metadata, self.time_ms(), file.as_posix(), caller.f_lineno, mlperf)
        for sink in self._sinks:
            sink.write(event)
