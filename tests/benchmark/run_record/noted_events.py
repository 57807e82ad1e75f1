from collections.abc import Iterable

from benchmark.run_record.events.event_columns import EventColumns
from benchmark.run_record.events.recorded_events import RecordedEvent, RecordedEvents


def events_of(events: Iterable[RecordedEvent]) -> RecordedEvents:
    """Return these events as :class:`RecordedEvents`."""
    columns = EventColumns()
    for event in events:
        columns.append(event.time_ms, event.key, {"value": event.value, **event.fields})
    return RecordedEvents(columns)
