"""Events reach every sink, with the place in the code that reported them."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmark.events.event import Event
from benchmark.events.event_log import EventLog
from benchmark.events.line_files import JsonLines
from benchmark.events.mlperf_log import MlperfLog
from benchmark.results.recorded_run import read_events
from tests.benchmark.events.recorder import Recorder


@pytest.mark.slow
def test_one_sinks_failure_is_not_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def never(_: Event) -> None:
        raise RuntimeError("broken")

    log = MlperfLog(tmp_path / "result_0.txt")
    events = EventLog((Recorder(never), log, JsonLines(tmp_path / "events.jsonl")))
    events.start("run_start")
    events.point("eval_accuracy", 2.69, epoch_num=4096)
    assert events.drain(log)
    assert events.pending(log) == ()
    assert len((tmp_path / "result_0.txt").read_text().splitlines()) == 2
    events.close()
    lines = [json.loads(line[len(":::MLLOG ") :]) for line in (tmp_path / "result_0.txt").read_text().splitlines()]
    assert [line["key"] for line in lines] == ["run_start", "eval_accuracy"]
    assert list(lines[1]) == ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
    place = lines[1]["metadata"]
    assert (place["file"], place["epoch_num"]) == ("tests/benchmark/events/test_event_log.py", 4096)
    assert 'events.point("eval_accuracy"' in Path(__file__).read_text().splitlines()[place["lineno"] - 1]
    assert [one.key for one in read_events(tmp_path / "events.jsonl")] == ["run_start", "eval_accuracy"]
    assert capfd.readouterr().err.count("recorder: broken") == 1


def test_kinds_of_events() -> None:
    seen: list[Event] = []
    events = EventLog((Recorder(seen.append),))
    events.start("a", epoch_num=1)
    events.end("a")
    events.point("b", [1, 2])
    events.note("c", "for people")
    events.close()
    assert [(one.key, one.kind, one.value, one.mlperf) for one in seen] == [
        ("a", "INTERVAL_START", None, True),
        ("a", "INTERVAL_END", None, True),
        ("b", "POINT_IN_TIME", [1, 2], True),
        ("c", "POINT_IN_TIME", "for people", False),
    ]
    assert seen[0].metadata == {"epoch_num": 1}
    assert [one.time_ms for one in seen] == sorted(one.time_ms for one in seen)


def echo(event: Event) -> tuple[str, Mapping[str, Any]] | None:
    """Repeats what it hears of "a"; fails at "b"."""
    if event.key == "b":
        raise KeyError("unknown")
    return ("echo", {"of": event.key}) if event.key == "a" else None


def test_who_follows_adds_notes_and_is_left_out_once_it_fails() -> None:
    seen: list[Event] = []
    events = EventLog((Recorder(seen.append),), echo)
    for key in ("a", "b", "a"):
        events.point(key, 1, epoch_num=2)
    events.close()
    assert [one.key for one in seen] == ["a", "echo", "b", "message", "a"]
    assert (seen[1].metadata, seen[1].value, seen[1].mlperf, seen[1].time_ms) == (
        {"of": "a"},
        None,
        False,
        seen[0].time_ms,
    )
    assert seen[3].value == "echo is left out from now on: KeyError: 'unknown'"


def test_without_sinks_it_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    events = EventLog()
    events.point("b", object())
    events.close()
    assert capfd.readouterr() == ("", "")


def test_times_go_on_when_somebody_sets_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Event] = []
    events = EventLog((Recorder(seen.append),))
    events.point("run_start")
    clock_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock_ns() - 3_600_000_000_000)
    events.point("run_stop")
    events.close()
    assert 0 <= seen[1].time_ms - seen[0].time_ms < 60_000
    assert abs(seen[0].time_ms - clock_ns() // 1_000_000) < 60_000
