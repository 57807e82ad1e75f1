"""The events of a run, read back from its ``events.jsonl`` as data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stage.errors import InputError
from stage.regular_files import is_regular

MOST_BYTES = 512 << 20
"""A step takes 400 bytes: a million of them."""
OWN = ("time_ms", "key", "kind", "value")


@dataclass(frozen=True)
class RecordedEvent:
    """One line."""

    time_ms: int
    """Milliseconds since the epoch."""
    key: str
    value: Any
    fields: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        """A field, if it is a number."""
        value = self.fields.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_events(path: Path) -> Sequence[RecordedEvent]:
    """The events in their order; none where there is no file. Lines that are not whole, as a killed run leaves one,
    are left out. Raises InputError for a file too large to read."""
    if not is_regular(path):
        return ()
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: {path.stat().st_size:,} bytes, expected at most {MOST_BYTES:,}; move it away")
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
    """The value of the last event of ``key`` that has an object for it; empty where there is none."""
    for event in reversed(events):
        if event.key == key and isinstance(event.value, dict):
            return event.value
    return {}
