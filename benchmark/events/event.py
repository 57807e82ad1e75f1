"""What an event is, and what takes it in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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
    """Takes events, one at a time and in their order. It may raise: then it is given the same event again."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def write(self, event: Event) -> None: ...

    def close(self) -> None: ...


Follow = Callable[[Event], tuple[str, Mapping[str, Any]] | None]
"""Gives key and fields of a note that belongs behind an event, if there is one. It is called where the event is
reported, so it has to return at once; should it raise, it is not called again."""
