"""A result file as data: its records, by line and by key, and what could not be read. mllog.py reads it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

MOST_EXACT = 1 << 53
"""Beyond it a float does not tell whole numbers apart."""
EVENT_TYPES = ("POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END")


@dataclass(frozen=True)
class Problem:
    """Something in a file that cannot be read as it should."""

    line: int | None
    """Counted from 1; None: the whole file."""
    found: str
    expected: str
    fatal: bool = True
    """Whether the official tools fail, crash or lose a record by it."""


@dataclass(frozen=True)
class LogEvent:
    """One record of a result file."""

    line: int
    """Counted from 1."""
    key: str
    value: Any
    time_ms: int
    """Milliseconds since the epoch."""
    event_type: str
    """POINT_IN_TIME, INTERVAL_START or INTERVAL_END, if the record is as it should be."""
    metadata: Mapping[str, Any]

    @property
    def number(self) -> float | None:
        """The value, if it is a finite number."""
        return as_number(self.value)

    @property
    def tokens(self) -> float | None:
        """``metadata.epoch_num``: for gpt3, tokens trained since the initial checkpoint."""
        return as_number(self.metadata.get("epoch_num"))


@dataclass(frozen=True)
class ResultLog:
    """A result file."""

    path: Path
    size_bytes: int
    num_lines: int
    """Physical lines, those of other programs included."""
    events: Sequence[LogEvent]
    """In the order of the file."""
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
        """The value of the first record of ``key``, None if there is none."""
        event = self.first(key)
        return None if event is None else event.value

    def number(self, key: str) -> float | None:
        """The value of the first record of ``key``; None if there is none, or it is no finite number."""
        event = self.first(key)
        return None if event is None else event.number

    def text(self, key: str) -> str | None:
        """The value of the first record of ``key``; None if there is none, or it is no string."""
        value = self.value(key)
        return value if isinstance(value, str) else None


def as_number(value: Any) -> float | None:
    """``value`` if it is a finite JSON number; an integer stays one, as far as a float can tell it from the next."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) <= MOST_EXACT:
        return value
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond a float's range
        return None
