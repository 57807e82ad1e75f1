"""Represent a result file as data: its records, by line and by key, and its unreadable places. mllog.py reads it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

MOST_EXACT = 1 << 53
"""Largest whole number up to which a float tells whole numbers apart."""
EVENT_TYPES = ("POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END")


@dataclass(frozen=True)
class Problem:
    """A place in a file that cannot be read as it should."""

    line: int | None
    """Line, counted from 1; None for the whole file."""
    found: str
    expected: str
    fatal: bool = True
    """True if the official tools fail, crash or lose a record here."""


@dataclass(frozen=True)
class LogEvent:
    """One record of a result file."""

    line: int
    """Line, counted from 1."""
    key: str
    value: Any
    time_ms: int
    """Milliseconds since the epoch."""
    event_type: str
    """POINT_IN_TIME, INTERVAL_START or INTERVAL_END in a valid record."""
    metadata: Mapping[str, Any]

    @property
    def number(self) -> float | None:
        """Return the value, if it is a finite number."""
        return as_number(self.value)


@dataclass(frozen=True)
class ResultLog:
    """A result file."""

    path: Path
    size_bytes: int
    num_lines: int
    """Number of physical lines, including those of other programs."""
    events: Sequence[LogEvent]
    """Records in the order of the file."""
    problems: Sequence[Problem]

    @cached_property
    def by_key(self) -> Mapping[str, Sequence[LogEvent]]:
        grouped: dict[str, list[LogEvent]] = {}
        for event in self.events:
            grouped.setdefault(event.key, []).append(event)
        return grouped

    def all(self, key: str) -> Sequence[LogEvent]:
        return self.by_key.get(key, ())

    def first(self, key: str) -> LogEvent | None:
        return next(iter(self.all(key)), None)

    def last(self, key: str) -> LogEvent | None:
        return self.all(key)[-1] if self.all(key) else None

    def value(self, key: str) -> Any:
        """Return the value of the first record of ``key``; None if there is none."""
        event = self.first(key)
        return None if event is None else event.value

    def number(self, key: str) -> float | None:
        """Return the value of the first record of ``key``; None if there is none, or if it is no finite number."""
        event = self.first(key)
        return None if event is None else event.number

    def text(self, key: str) -> str | None:
        """Return the value of the first record of ``key``; None if there is none, or if it is no string."""
        value = self.value(key)
        return value if isinstance(value, str) else None


def as_number(value: Any) -> float | None:
    """Return ``value`` if it is a finite JSON number. An integer stays one, unless a float could not tell it from the
    next."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) <= MOST_EXACT:
        return value
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond a float's range
        return None
