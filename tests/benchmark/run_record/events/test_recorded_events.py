"""Events come back as they were written, in an order of magnitude less memory than Python objects take."""

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.judging.report.time_section import timeline
from benchmark.judging.results.recorded_run import read_recorded_run
from benchmark.run_record.events import event_columns
from benchmark.run_record.events.recorded_events import (
    MOST_EVENT_BYTES,
    MOST_LINE_BYTES,
    RecordedEvent,
    RecordedEvents,
    read_events,
)
from foundation.errors import InputError
from tests.benchmark.judging.report.runs import MadeRun
from tests.benchmark.run_record.noted_events import events_of

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=2),
)  # fmt: skip
FIELDS = st.dictionaries(st.sampled_from(("steps", "loss", "skipped", "a")), VALUES)
EVENTS = st.lists(
    st.builds(RecordedEvent, st.integers(-5, 2**62), st.sampled_from(("step", "eta", "message", "x")), VALUES, FIELDS)
)


@pytest.mark.parametrize(("groups", "keys"), [(255, 65_535), (1, 65_535), (255, 1), (255, 0)])
def test_events_come_back_as_they_were(groups: int, keys: int) -> None:
    @given(EVENTS)
    def come_back(events: list[RecordedEvent]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(event_columns, "MOST_COLUMN_GROUPS", groups)
            patch.setattr(event_columns, "MOST_KEYS", keys)
            compact = events_of(events)
            assert list(compact) == events
            assert all(
                type(value) is type(event.fields[name])
                for event, other in zip(events, compact, strict=True)
                for name, value in other.fields.items()
            )
            steps = [event for event in events if event.key == "step"]
            assert list(compact.of("step")) == steps
            assert compact.are("step") == [event.key == "step" for event in events]
            assert list(compact.of("step", "eta")[1:-1]) == [e for e in events if e.key in ("step", "eta")][1:-1]
            assert list(compact.of("step").times_ms) == [event.time_ms for event in steps]
            numbers = [event.number("loss") for event in steps]
            assert list(compact.of("step").numbers("loss", -1.5)) == [-1.5 if x is None else float(x) for x in numbers]
            assert list(compact.between(0, 9)) == [event for event in events if 0 <= event.time_ms <= 9]

    come_back()


def test_indices_of_the_events_of_a_key() -> None:
    events = events_of(RecordedEvent(1, key, None, {}) for key in "abeceed")
    assert events.indices("e") == [2, 4, 5]
    assert events[3:].indices("e", "d") == [1, 2, 3]
    assert events.indices("z") == []


def test_numbers_that_are_not_finite_or_not_numbers(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    values = ("1", "2.5", "NaN", "true", "null", '"3"', "1" + "0" * 400, "[1]")
    path.write_text("".join(f'{{"time_ms": 1, "key": "step", "loss": {value}}}\n' for value in values))
    numbers = read_events(path).numbers("loss")
    assert list(numbers[:2]) == [1.0, 2.5]
    assert all(map(math.isnan, numbers[2:]))
    assert list(read_events(path).present_numbers("loss")) == [1.0, 2.5]


def test_lines_that_are_no_events_are_left_out_and_the_last_note_counts(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert len(read_events(path)) == 0
    good = '{"time_ms": 1, "key": "step", "kind": "POINT", "value": null, "loss": 2.5, "skipped": true}'
    notes = [json.dumps({"time_ms": 1, "key": "inputs", "value": value}) for value in ({"a": 1}, {"a": 2}, 3)]
    times = ['{"time_ms": 1.5, "key": "a"}', f'{{"time_ms": {2**63}, "key": "a"}}']
    long = f'{{"time_ms": 1, "key": "a", "value": "{"x" * MOST_LINE_BYTES}"}}'
    lines = [good, "", "[" * 10**5, "[1]", '{"key": "step"}', *times, long, *notes, good[:40]]
    path.write_text("\n".join(lines))
    event, others = read_events(path)[0], read_events(path)[1:]
    assert (event.time_ms, event.key, event.value, event.fields) == (1, "step", None, {"loss": 2.5, "skipped": True})
    assert (event.number("loss"), event.number("skipped"), event.number("none")) == (2.5, None, None)
    assert (len(others), others.last_note("inputs"), others.last_note("environment")) == (3, {"a": 2}, {})
    with path.open("wb") as file:
        file.truncate(MOST_EVENT_BYTES + 1)
    with pytest.raises(InputError, match=r"events\.jsonl: 536,870,913 bytes, expected at most 536,870,912; move"):
        read_events(path)


def long_run(folder: Path, steps: int) -> Path:
    """A run with as many fields in a step as a real one."""
    run = MadeRun(folder)
    run.begin()
    step: dict[str, Any] = dict.fromkeys(("grad_norm", "tokens_per_s", "tflops_per_device", "mfu", "memory_gib"), 0.1)
    for number in range(1, steps + 1):
        run.now_ms += 100
        counts: dict[str, Any] = {
            "steps": number,
            "iteration": number,
            "consumed_samples": 16 * number,
            "trained_tokens": 4 * number,
        }
        run.emit("step", mlperf=False, **counts, **step, loss=3 / number, learning_rate=1e-4, step_s=0.09)
    return run.end()


def peak_bytes(folder: Path, steps: int) -> int:
    """The most memory that reading a run and dividing its time take."""
    long_run(folder, steps)
    assert (folder / "events.jsonl").stat().st_size > 300 * steps
    tracemalloc.start()
    try:
        run = read_recorded_run(folder)
        timeline(run)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_step_takes_a_tenth_of_the_memory_of_objects(tmp_path: Path) -> None:
    few, many = 1_000, 11_000
    grown = peak_bytes(tmp_path / "many", many) - peak_bytes(tmp_path / "few", few)
    assert grown < 250 * (many - few)  # a step of the file takes 350 bytes, an object of it 2,500


def test_no_events_equal_no_events() -> None:
    assert RecordedEvents() == events_of([])
    assert RecordedEvents() != ()
