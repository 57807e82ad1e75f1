"""The types of events, and of sinks that take them in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

EventKind = Literal["POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"]


@dataclass(frozen=True)
class Event:
    """One event of a run."""

    key: str
    kind: EventKind
    value: Any
    """A JSON value of plain Python numbers, strings, lists and dicts."""
    metadata: Mapping[str, Any]
    time_ms: int
    """Milliseconds since the epoch."""
    file: str
    """Source file of the call, relative to the repository."""
    lineno: int
    mlperf: bool
    """True if the event belongs in the MLPerf log."""


class Sink(Protocol):
    """A sink takes events, one at a time and in order. If it raises, it is given the same event again."""

    @property
    def name(self) -> str:
        """Name of the sink in messages."""
        ...

    def write(self, event: Event) -> None: ...

    def close(self) -> None: ...
