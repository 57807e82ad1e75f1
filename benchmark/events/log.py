"""Events and their sinks. Only rank 0 has sinks; on the other ranks an :class:`EventLog` is silent."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

REPOSITORY = Path(__file__).resolve().parents[2]

Kind = Literal["POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"]


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    key: str
    kind: Kind
    value: Any
    """A JSON value of plain Python numbers, strings, lists and dicts."""
    metadata: Mapping[str, Any]
    time_ms: int
    """Milliseconds since the epoch."""
    file: str
    """Source file of the call, relative to the repository."""
    lineno: int
    mlperf: bool
    """Whether it belongs in the MLPerf log."""


class Sink(Protocol):
    def write(self, event: Event) -> None: ...

    def close(self) -> None: ...


@dataclass
class EventLog:
    """Send events to every sink. ``mlperf`` methods go to the MLPerf log too; ``note`` does not."""

    sinks: Sequence[Sink] = field(default_factory=tuple)

    def point(self, key: str, value: Any = None, **metadata: Any) -> None:
        self._emit(key, "POINT_IN_TIME", value, metadata, True)

    def start(self, key: str, **metadata: Any) -> None:
        self._emit(key, "INTERVAL_START", None, metadata, True)

    def end(self, key: str, **metadata: Any) -> None:
        self._emit(key, "INTERVAL_END", None, metadata, True)

    def note(self, key: str, value: Any = None, **metadata: Any) -> None:
        """An event for people and reports, not for the MLPerf log."""
        self._emit(key, "POINT_IN_TIME", value, metadata, False)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()

    def _emit(self, key: str, kind: Kind, value: Any, metadata: Mapping[str, Any], mlperf: bool) -> None:
        if not self.sinks:
            return
        caller = sys._getframe(2)
        file = Path(caller.f_code.co_filename)
        if file.is_relative_to(REPOSITORY):
            file = file.relative_to(REPOSITORY)
        time_ms = time.time_ns() // 1_000_000
        event = Event(key, kind, value, metadata, time_ms, file.as_posix(), caller.f_lineno, mlperf)
        for sink in self.sinks:
            sink.write(event)


class JsonLines:
    """``events.jsonl``: every event, one JSON object per line, appended and flushed at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, event: Event) -> None:
        fields = {"time_ms": event.time_ms, "key": event.key, "kind": event.kind, "value": event.value}
        self._file.write(json.dumps({**fields, **event.metadata}) + "\n")

    def close(self) -> None:
        self._file.close()
