"""Small files of a run are whole or not there, and read as data; attempts come in the order they began."""

import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.run_record.attempt_folder import (
    AttemptEnding,
    AttemptStart,
    all_attempts,
    new_attempt,
    raise_alarm,
    write_start,
)
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.endings import StopNote
from benchmark.run_record.file_names import attempt_path
from benchmark.run_record.incidents import Incident, read_incidents
from benchmark.run_record.small_files import (
    MOST_BYTES,
    read_object,
    read_record,
    wait_for,
    write_object,
)
from tests.foundation.test_disk_answers import give_errors

START = AttemptStart("0001", None, None, None, 5.0, 16, ("n1", "n2"))
RECORDS = (
    (START, [("started_s", "noon"), ("hosts", [1]), ("resumed_at", "16"), ("attempt", None)]),
    (AttemptEnding(9.0, 137, "again", "why", ("n2",)), [("status", 1.5), ("exclude", ["n2", None]), ("exclude", 3)]),
    (StopNote("time limit", 3, saved=True), [("steps", "3"), ("saved", "yes"), ("by", 1)]),
    (Incident(1.0, 0, "n1", 7, "hang", None, "passes", "no sign", state="T"), [("time_s", "now"), ("waits_in", 1)]),
)


@pytest.mark.parametrize(
    "question",
    [whole_checkpoints, all_attempts, read_incidents],
    ids=lambda question: question.__name__,
)
def test_disk_that_gives_an_error_says_nothing(
    question: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder without entries would, with which a run begins again."""
    assert not question(tmp_path / "missing")
    give_errors(monkeypatch)
    with pytest.raises(OSError, match="Input/output error"):
        question(tmp_path)


@pytest.mark.parametrize(("record", "damages"), RECORDS)
def test_record_is_read_back_and_damage_is_nothing(record: Any, damages: list[tuple[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.json"
    write_object(path, record)
    assert [path.name for path in path.parent.iterdir()] == ["x.json"]
    assert read_record(path, type(record)) == record
    fields = dataclasses.asdict(record)
    name = next(iter(fields))
    for damaged in (*({**fields, key: value} for key, value in damages), {**fields, "more": 1}, {name: fields[name]}):
        path.write_text(json.dumps(damaged))
        assert read_record(path, type(record)) is None, damaged


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b" " * (MOST_BYTES + 1)])
def test_what_is_no_object_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert (read_object(tmp_path / "x"), read_record(tmp_path / "x", StopNote)) == (None, None)


def test_pipes_and_folders_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [read_object(path) for path in (tmp_path / "pipe", tmp_path, tmp_path / "none")] == [None] * 3


def test_attempts_come_in_the_order_they_began(tmp_path: Path) -> None:
    assert all_attempts(tmp_path) == []
    assert [new_attempt(tmp_path), new_attempt(tmp_path)] == ["0001", "0002"]
    for name, second in (("0001", 30.0), ("torchrun-x-0", 20.0), ("0002", 10.0)):
        write_start(attempt_path(tmp_path, name), dataclasses.replace(START, attempt=name, started_s=second))
    assert [entry.name for entry in all_attempts(tmp_path)] == ["torchrun-x-0", "0001", "0002"]  # a clock jumped
    assert new_attempt(tmp_path) == "0003"
    assert all_attempts(tmp_path)[-1].name == "0003"  # where nothing was written yet, its folder's time counts


def test_only_the_first_alarm_counts(tmp_path: Path) -> None:
    assert raise_alarm(tmp_path, "killed: rank 3")
    assert not raise_alarm(tmp_path, "lost connection: rank 0")
    assert (tmp_path / "alarm").read_text() == "killed: rank 3\n"
    assert [path.name for path in tmp_path.iterdir()] == ["alarm"]


def test_error_of_the_disk_is_no_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error", "/run/summary.json")

    monkeypatch.setattr("benchmark.run_record.small_files.os.open", fail)
    with pytest.raises(OSError, match="Input/output error"):
        read_object(tmp_path / "summary.json")


def test_waiting_ends_with_an_answer_a_missing_file_or_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines = [0.0], list[str]()
    monkeypatch.setattr("benchmark.run_record.small_files.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(
        "benchmark.run_record.small_files.time.sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    )

    def act() -> str:
        if clock[0] < 7.0:
            raise OSError(errno.EIO, "Input/output error", "/run")
        return "answer"

    assert wait_for(act, 60.0, lines.append) == "answer"
    assert (clock[0], lines) == (9.0, ["/run: Input/output error; tried again for up to 60 s"])
    clock[0] = 0.0
    with pytest.raises(OSError, match="Input/output"):
        wait_for(act, 3.0, lines.append)
    assert clock[0] == 3.0
    with pytest.raises(FileNotFoundError):
        wait_for((Path("/none") / "file").read_text, 60.0, lines.append)
    assert clock[0] == 3.0
