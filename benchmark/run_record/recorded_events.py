"""Read ``events.jsonl``, the events that a run writes beside its MLPerf log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from foundation.regular_files import is_regular

MOST_EVENT_BYTES = 512 << 20
"""Largest file in bytes. A step takes 400 bytes, so it holds about a million steps."""
OWN = ("time_ms", "key", "kind", "value")


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


def read_events(path: Path) -> Sequence[RecordedEvent]:
    """Return the events in their order; none if there is no file. Incomplete lines, as a killed run leaves one, are
    left out. Raises InputError if the file is too large to read."""
    if not is_regular(path):
        return ()
    if path.stat().st_size > MOST_EVENT_BYTES:
        raise InputError(f"{path}: {path.stat().st_size:,} bytes, expected at most {MOST_EVENT_BYTES:,}; move it away")
    events: list[RecordedEvent] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("key"), str) and type(record.get("time_ms")) is int:
                fields = {name: value for name, value in record.items() if name not in OWN}
                events.append(RecordedEvent(record["time_ms"], record["key"], record.get("value"), fields))
    return events


def last_note(events: Sequence[RecordedEvent], key: str) -> Mapping[str, Any]:
    """Return the value of the last event of ``key`` whose value is an object; empty without one."""
    for event in reversed(events):
        if event.key == key and isinstance(event.value, dict):
            return event.value
    return {}
