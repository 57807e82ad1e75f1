"""Read ``events.jsonl``, the events that a run writes beside its MLPerf log."""

import json
import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from pathlib import Path
from typing import Any, overload

from benchmark.run_record.events.event_columns import LARGEST_INTEGER, EventColumns
from foundation.errors import InputError
from foundation.regular_files import is_regular

MOST_EVENT_BYTES = 512 << 20
"""Largest file in bytes. A step takes 600 bytes, so it holds some 900,000 steps."""
MOST_LINE_BYTES = 1 << 20
ENVELOPE = ("time_ms", "key", "kind")
"""Names in a line that are neither the value nor a field of the event."""


@dataclass(frozen=True)
class RecordedEvent:
    """One line of ``events.jsonl``."""

    time_ms: int
    """Milliseconds since the epoch."""
    key: str
    value: Any
    fields: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        """Return a field, if it is a number."""
        value = self.fields.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class RecordedEvents(Sequence[RecordedEvent]):
    """Events in their order: those of a file, or some of them. An event becomes an object when it is asked for."""

    def __init__(self, columns: EventColumns | None = None, positions: Sequence[int] | None = None) -> None:
        self._columns = EventColumns() if columns is None else columns
        self._positions = range(len(self._columns.times_ms)) if positions is None else positions
        """Positions of these events in the columns, in ascending order."""

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> RecordedEvent: ...

    @overload
    def __getitem__(self, index: slice) -> "RecordedEvents": ...

    def __getitem__(self, index: int | slice) -> "RecordedEvent | RecordedEvents":
        if isinstance(index, slice):
            return RecordedEvents(self._columns, self._positions[index])
        position = self._positions[index]
        key, fields = self._columns.contents(position)
        return RecordedEvent(self._columns.times_ms[position], key, fields.pop("value", None), fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedEvents) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def of(self, *keys: str) -> "RecordedEvents":
        """Return the events of these keys."""
        return RecordedEvents(self._columns, self._columns.positions(keys, self._positions))

    def are(self, key: str) -> list[bool]:
        """Return for each event whether it has this key."""
        return list(self._columns.have_key((key,), self._positions))

    def between(self, first_ms: int, last_ms: int) -> "RecordedEvents":
        """Return the events from one time to another, both included."""
        times_ms = self._columns.times_ms
        dated = array("I", (position for position in self._positions if first_ms <= times_ms[position] <= last_ms))
        return RecordedEvents(self._columns, dated)

    def indices(self, *keys: str) -> list[int]:
        """Return the indices of the events of these keys."""
        return [bisect_left(self._positions, position) for position in self.of(*keys)._positions]

    @property
    def times_ms(self) -> "array[int]":
        return array("q", (self._columns.times_ms[position] for position in self._positions))

    def numbers(self, name: str, missing: float = math.nan) -> "array[float]":
        """Return a field of each event; ``missing`` where an event has no such number."""
        return self._columns.numbers(name, self._positions, missing)

    def present_numbers(self, name: str) -> "array[float]":
        """Return a field of the events that have such a number."""
        return array("d", (number for number in self.numbers(name) if not math.isnan(number)))

    def last_note(self, key: str) -> Mapping[str, Any]:
        """Return the value of the last event of ``key`` whose value is an object; empty without one."""
        notes = self.of(key)
        return next((note.value for note in reversed(notes) if isinstance(note.value, dict)), {})


def read_events(path: Path) -> RecordedEvents:
    """Return the events in their order; none if there is no file. Incomplete lines, as a killed run leaves one, are
    left out, and lines of more than :data:`MOST_LINE_BYTES`. Raises InputError if the file is too large to read."""
    columns = EventColumns()
    if not is_regular(path):
        return RecordedEvents(columns)
    if path.stat().st_size > MOST_EVENT_BYTES:
        raise InputError(f"{path}: {path.stat().st_size:,} bytes, expected at most {MOST_EVENT_BYTES:,}; move it away")
    with path.open("rb") as lines:
        for line in lines:
            record = _record(line)
            if isinstance(record, dict) and isinstance(record.get("key"), str) and _is_time(record.get("time_ms")):
                fields = {"value": record.get("value"), **record}
                columns.append(record["time_ms"], record["key"], {n: v for n, v in fields.items() if n not in ENVELOPE})
    return RecordedEvents(columns)


def _record(line: bytes) -> Any:
    if len(line) > MOST_LINE_BYTES:
        return None
    try:
        return json.loads(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None


def _is_time(value: Any) -> bool:
    return type(value) is int and abs(value) <= LARGEST_INTEGER
