"""Events reach every sink, with the place in the code that reported them."""

import json
from pathlib import Path

import pytest

from benchmark.run_record.events.event import Event
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.line_files import JsonLines
from benchmark.run_record.events.mlperf_log import MlperfLog
from benchmark.run_record.events.recorded_events import read_events
from tests.benchmark.run_record.events.recorder import Recorder


def test_events_reach_log_and_lines_with_their_place_in_the_code(tmp_path: Path) -> None:
    log = MlperfLog(tmp_path / "result_0.txt")
    events = EventLog((log, JsonLines(tmp_path / "events.jsonl")))
    events.start("run_start")
    events.point("eval_accuracy", 2.69, epoch_num=4096)
    events.note("c", "for people")
    assert events.drain(log)
    assert events.pending(log) == ()
    events.close()
    lines = [json.loads(line[len(":::MLLOG ") :]) for line in (tmp_path / "result_0.txt").read_text().splitlines()]
    assert [line["key"] for line in lines] == ["run_start", "eval_accuracy"]
    assert list(lines[1]) == ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
    place = lines[1]["metadata"]
    assert (place["file"], place["epoch_num"]) == ("tests/benchmark/run_record/events/test_event_log.py", 4096)
    assert 'events.point("eval_accuracy"' in Path(__file__).read_text().splitlines()[place["lineno"] - 1]
    assert [one.key for one in read_events(tmp_path / "events.jsonl")] == ["run_start", "eval_accuracy", "c"]


def test_kinds_of_events() -> None:
    seen: list[Event] = []
    events = EventLog((Recorder(seen.append),))
    events.start("a", epoch_num=1)
    events.end("a")
    events.point("b", [1, 2])
    events.note("c", "for people")
    events.warn("damaged")
    events.close()
    assert [(one.key, one.kind, one.value, one.mlperf) for one in seen] == [
        ("a", "INTERVAL_START", None, True),
        ("a", "INTERVAL_END", None, True),
        ("b", "POINT_IN_TIME", [1, 2], True),
        ("c", "POINT_IN_TIME", "for people", False),
        ("message", "POINT_IN_TIME", "damaged", False),
    ]
    assert seen[4].metadata == {"wrong": True}
    assert seen[0].metadata == {"epoch_num": 1}
    assert [one.time_ms for one in seen] == sorted(one.time_ms for one in seen)


def test_without_sinks_it_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    events = EventLog()
    events.point("b", object())
    events.close()
    assert capfd.readouterr() == ("", "")
