"""Events of a run, read back."""

import json
from pathlib import Path

import pytest

from benchmark.results.recorded_events import MOST_BYTES, last_note, read_events
from benchmark.results.recorded_run import read_recorded_run
from stage.errors import InputError
from tests.benchmark.report.runs import write_run


def test_lines_that_are_no_events_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    good = '{"time_ms": 1, "key": "step", "kind": "POINT", "value": null, "loss": 2.5, "skipped": true}'
    path.write_text(
        "\n".join([good, "", "[1]", '{"key": "step"}', '{"time_ms": 1.5, "key": "a"}', good[:40], "[" * 10**5])
    )
    (event,) = read_events(path)
    assert (event.time_ms, event.key, event.value, event.fields) == (1, "step", None, {"loss": 2.5, "skipped": True})
    assert (event.number("loss"), event.number("skipped"), event.number("none")) == (2.5, None, None)
    assert read_events(tmp_path / "nothing") == ()


def test_killed_runs_last_line_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    events = folder / "events.jsonl"
    whole = len(read_recorded_run(folder).events)
    events.write_text(events.read_text() + '{"time_ms": 17000, "key": "st')
    assert len(read_recorded_run(folder).events) == whole


def test_last_note_is_that_of_the_last_process(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    values = ({"a": 1}, {"a": 2}, 3)
    path.write_text("\n".join(json.dumps({"time_ms": 1, "key": "inputs", "value": value}) for value in values))
    assert last_note(read_events(path), "inputs") == {"a": 2}
    assert last_note(read_events(path), "environment") == {}


def test_file_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(InputError, match=r"events\.jsonl: 536,870,913 bytes, expected at most 536,870,912; move"):
        read_events(path)
