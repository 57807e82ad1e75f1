"""Which attempts a run had, by folders, by events, and by either alone."""

import json
import math
from pathlib import Path

from benchmark.goodput.recorded_attempts import Cause, RecordedAttempt, recorded_attempts
from benchmark.results.recorded_events import read_events
from benchmark.supervision.attempt_folder import attempt_path
from tests.benchmark.goodput.supervised_run import HOSTS, killed_and_hung, second_did_not_meet
from tests.benchmark.report.runs import START_MS, MadeRun, restarted_run, write_run


def attempts_of(folder: Path) -> list[RecordedAttempt]:
    return recorded_attempts(folder, read_events(folder / "events.jsonl"))


def test_folders_and_events_are_brought_together(tmp_path: Path) -> None:
    folder = killed_and_hung(tmp_path / "run")
    first, second, third = attempts_of(folder)
    events = read_events(folder / "events.jsonl")
    assert [first.name, second.name, third.name] == ["0001", "0002", "0003"]
    assert [one.events.start for one in (first, second, third)] == [
        place for place, event in enumerate(events) if event.key == "environment"
    ]
    assert third.events.stop == len(events)
    assert (first.submitted_ms, first.launched_ms, first.started_ms) == (START_MS, START_MS + 60_000, START_MS + 61_000)
    assert (first.hosts, first.status, first.action) == (HOSTS, 70, "again")
    killed_ms = START_MS + 60_000 + 9000 + 2000 + 1750 + 1000 + 400
    assert first.cause == Cause(killed_ms, "killed", 3, "n2", "passes", "gone without a word")
    assert first.ended_ms == killed_ms + 2000
    assert second.cause is not None
    assert second.cause.kind == "hang"
    assert third.cause is None


def test_attempt_that_never_opened_the_log_has_its_place(tmp_path: Path) -> None:
    first, second, third = attempts_of(second_did_not_meet(tmp_path / "run", opened_log=False))
    assert [first.name, second.name, third.name] == ["0001", "0002", "0003"]
    assert not second.events
    assert second.events.start == third.events.start
    assert second.cause is not None
    assert second.cause.kind == "meeting"


def test_attempt_that_failed_before_its_note_is_known_by_its_order(tmp_path: Path) -> None:
    """Rank 0 opened the log, but the processes never met."""
    first, second, third = attempts_of(second_did_not_meet(tmp_path / "run", opened_log=True))
    assert [first.name, second.name, third.name] == ["0001", "0002", "0003"]
    assert (len(second.events), second.status) == (1, 2)


def test_runs_without_attempts_are_told_apart_by_their_beginnings(tmp_path: Path) -> None:
    (alone,) = attempts_of(write_run(tmp_path / "alone"))
    assert (alone.name, alone.launched_ms, alone.ended_ms, alone.hosts) == ("1", None, None, ())
    assert [one.name for one in attempts_of(restarted_run(tmp_path / "restarted"))] == ["1", "2"]
    run = MadeRun(tmp_path / "again")  # killed before its first checkpoint: begun anew, without a restart in its log
    for _ in range(3):
        run.emit("environment", {}, mlperf=False)
        run.begin()
        run.step()
    assert [len(one.events) for one in attempts_of(run.end())][:2] == [14, 14]
    assert attempts_of(tmp_path / "nothing") == []


def test_note_tells_where_the_folder_is_gone(tmp_path: Path) -> None:
    folder = killed_and_hung(tmp_path / "run")
    for path in attempt_path(folder, "0001").iterdir():
        path.unlink()
    attempt_path(folder, "0001").rmdir()
    first = attempts_of(folder)[0]
    assert (first.name, first.launched_ms, first.hosts, first.ended_ms) == ("0001", START_MS + 60_000, HOSTS, None)


def test_damaged_files_count_as_not_there(tmp_path: Path) -> None:
    folder = killed_and_hung(tmp_path / "run")
    first = attempt_path(folder, "0001")
    start = json.loads((first / "attempt.json").read_text())
    odd = {"submitted_s": "soon", "launched_s": [], "started_s": None, "hosts": ["\x1b[31mn1", 7, None], "job": 9}
    (first / "attempt.json").write_text(json.dumps({**start, **odd}))
    end = {"ended_s": math.nan, "status": "x", "action": 5, "reason": "\x1b[2J", "exclude": []}
    (first / "ended.json").write_text(json.dumps(end))
    (first / "rank_00003.incident.json").write_text("[" * 100_000)
    (attempt_path(folder, "0002") / "rank_00002.incident.json").write_bytes(b" " * (2 << 20))
    (attempt_path(folder, "0003") / "attempt.json").write_bytes(bytes(range(256)))
    found = attempts_of(folder)
    one = next(attempt for attempt in found if attempt.name == "0001")
    assert (one.submitted_ms, one.launched_ms, one.started_ms, one.job) == (None, None, None, None)
    assert one.hosts == ()
    assert (one.ended_ms, one.status, one.action, one.reason) == (None, None, "", "")
    assert one.cause is not None
    assert one.cause.kind == "lost connection"
    assert {attempt.name for attempt in found} == {"0001", "0002", "0003"}
