"""What slowed a run, as it noted it in its events: slow ranks, devices that turned bad, throughput that dropped."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmark.report.page_model import SlownessRow
from benchmark.results.recorded_events import RecordedEvent
from benchmark.results.recorded_run import RecordedRun

MOST_ROWS = 200
"""Of a page."""


def slowness(runs: Sequence[RecordedRun], names: Sequence[str]) -> list[SlownessRow]:
    """In the order of the runs and of time; empty where nothing was noted."""
    rows = [
        SlownessRow(name, *row)
        for run, name in zip(runs, names, strict=True)
        for event in run.events
        for row in _rows_of(event)
    ]
    return rows[:MOST_ROWS]


def _rows_of(event: RecordedEvent) -> Iterator[tuple[str, str, str]]:
    """Step, place, and what was found."""
    fields = event.fields
    if event.key == "slow_ranks":
        step = _whole(fields.get("iteration"))
        for one in _objects(fields.get("slow")):
            times = f"{_ms(one.get('block_s'))} a block, its peers {_ms(one.get('peers_block_s'))}"
            health = f"; {one['health']}" if one.get("health") else ""
            yield step, _place(one), f"computes {_percent(one.get('excess'))} slower: {times}{health}"
        recovered = fields.get("recovered")
        for rank in recovered if isinstance(recovered, list) else []:
            yield step, f"rank {_whole(rank)}", "computes as fast as the others again"
    elif event.key == "device_health":
        yield "", _place(fields), str(fields.get("found", ""))
    elif event.key == "speed_change":
        times = f"{_seconds(fields.get('now_s'))}, {_seconds(fields.get('before_s'))} before"
        kind = "steps are fast again" if fields.get("kind_of_change") == "recovery" else "steps became slower"
        yield _whole(fields.get("since")), "all ranks", f"{kind}: {times}"


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _place(fields: Mapping[str, Any]) -> str:
    device = fields.get("device")
    gpu = "" if device is None else f" GPU {_whole(device)}"
    return f"rank {_whole(fields.get('rank'))} on {fields.get('host', '?')}{gpu}"


def _whole(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _percent(value: Any) -> str:
    return f"{value:.0%}" if isinstance(value, int | float) else "?"


def _ms(value: Any) -> str:
    return f"{1000 * value:.3g} ms" if isinstance(value, int | float) else "?"


def _seconds(value: Any) -> str:
    return f"{value:.4g} s" if isinstance(value, int | float) else "?"
