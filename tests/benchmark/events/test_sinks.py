"""Sinks that fail: reported once, tried again, and never felt by who reports events."""

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.events.background_sink import Background
from benchmark.events.event import Event
from benchmark.events.event_log import EventLog
from benchmark.events.line_files import JsonLines, LineFile
from benchmark.events.mlperf_log import MlperfLog
from benchmark.events.tensorboard import TensorBoard
from benchmark.results.recorded_events import last_note, read_events
from stage.errors import InputError


def event(key: str, value: Any = None, **metadata: Any) -> Event:
    return Event(key, "POINT_IN_TIME", value, metadata, 1_700_000_000_000, "benchmark/training/loop.py", 7, mlperf=True)


class Recorder:
    """Calls ``before`` at each event, then keeps its key."""

    name = "recorder"

    def __init__(self, before: Callable[[Event], None]) -> None:
        self._before, self.keys, self.closed = before, list[str](), False

    def write(self, event: Event) -> None:
        self._before(event)
        self.keys.append(event.key)

    def close(self) -> None:
        self.closed = True


def test_full_disk_is_told_once_and_nothing_is_lost(capfd: pytest.CaptureFixture[str]) -> None:
    failures = iter([OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))] * 4)

    def fail_four_times(_: Event) -> None:
        for failure in failures:
            raise failure

    sink = Recorder(fail_four_times)
    background = Background(sink, retry_s=0.01)
    for number in range(50):
        background.write(event(str(number)))
    background.close()
    assert sink.keys == [str(number) for number in range(50)]
    assert sink.closed
    told = capfd.readouterr().err.splitlines()
    expected = "warning: recorder: No space left on device; training goes on, and it is tried again"
    assert told == [expected, "warning: recorder: works again"]


def test_sink_that_hangs_slows_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    released = threading.Event()
    sink = Recorder(lambda _: assert_true(released.wait(60)))
    background = Background(sink)
    started = time.perf_counter()
    for number in range(1000):
        background.write(event(str(number)))
    assert time.perf_counter() - started < 1.0
    background.close(patience_s=0.2)
    assert time.perf_counter() - started < 5.0
    assert "warning: recorder: 1000 events could not be written" in capfd.readouterr().err
    assert not sink.closed
    released.set()


def assert_true(value: bool) -> None:
    assert value


def test_event_that_a_sink_cannot_take_does_not_block_the_next(capfd: pytest.CaptureFixture[str]) -> None:
    def refuse_odd(one: Event) -> None:
        if one.key == "odd":
            raise TypeError("cannot be encoded")

    sink = Recorder(refuse_odd)
    background = Background(sink, retry_s=0.01)
    for key in ("a", "odd", "b"):
        background.write(event(key))
    background.close()
    assert sink.keys == ["a", "b"]
    told = capfd.readouterr().err
    assert told.count("cannot be encoded") == 1
    assert "1 events could not be written" in told


def test_one_sinks_failure_is_not_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def never(_: Event) -> None:
        raise RuntimeError("broken")

    log = MlperfLog(tmp_path / "result_0.txt")
    events = EventLog((Recorder(never), log, JsonLines(tmp_path / "events.jsonl")))
    events.start("run_start")
    events.point("eval_accuracy", 2.69, epoch_num=4096)
    assert events.flush(log)
    assert log.size() == (tmp_path / "result_0.txt").stat().st_size > 0
    events.close()
    lines = [json.loads(line[len(":::MLLOG ") :]) for line in (tmp_path / "result_0.txt").read_text().splitlines()]
    assert [line["key"] for line in lines] == ["run_start", "eval_accuracy"]
    assert list(lines[1]) == ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
    place = lines[1]["metadata"]
    assert (place["file"], place["epoch_num"]) == ("tests/benchmark/events/test_sinks.py", 4096)
    assert 'events.point("eval_accuracy"' in Path(__file__).read_text().splitlines()[place["lineno"] - 1]
    assert [one.key for one in read_events(tmp_path / "events.jsonl")] == ["run_start", "eval_accuracy"]
    assert capfd.readouterr().err.count("recorder: broken") == 1


def test_line_cut_by_a_full_disk_is_finished_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.pwrite, [5]

    def into_little_room(handle: int, block: bytes, offset: int) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(handle, block[: room[0]], offset)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", into_little_room)
    file = LineFile(tmp_path / "log", 0)
    with pytest.raises(OSError, match="No space"):
        file.write(b"0123456789")
    assert (file.size, (tmp_path / "log").read_bytes()) == (0, b"01234")
    room[0] = 100
    file.write(b"0123456789")
    file.write(b"next")
    assert (tmp_path / "log").read_bytes() == b"0123456789\nnext\n"
    assert file.size == 16


def test_files_start_afresh_or_go_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"kept\ndropped\n")
    LineFile(path, 5).close()
    assert path.read_bytes() == b"kept\n"
    file = LineFile(path, 500)  # a checkpoint knew of more than reached the disk
    file.write(b"more")
    assert path.read_bytes() == b"kept\nmore\n"
    path.write_bytes(b'{"whole": 1}\n{"cut": ')
    LineFile(path, None).write(b"{}")
    assert path.read_bytes() == b'{"whole": 1}\n{"cut": \n{}\n'
    LineFile(path, 0)
    assert path.read_bytes() == b""


def test_events_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert read_events(path) == ()
    lines = ['{"time_ms": 1, "key": "step", "kind": "POINT_IN_TIME", "value": null, "loss": 2.5, "skipped": true}']
    lines += ['{"time_ms": 2, "key": "inputs", "value": {"a": 1}}', "[1]", '{"key": "x"}', "not JSON", "[" * 100_000]
    path.write_text("\n".join(lines))
    events = read_events(path)
    assert [one.key for one in events] == ["step", "inputs"]
    assert (events[0].number("loss"), events[0].number("skipped"), events[0].number("none")) == (2.5, None, None)
    assert last_note(events, "inputs") == {"a": 1}
    assert last_note(events, "environment") == {}


def test_tensorboard_gets_what_steps_and_evaluations_say(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    sink = TensorBoard(tmp_path)
    sink.write(event("step", trained_tokens=4096, loss=2.5, grad_norm=0.25, learning_rate=2e-5, step_s=0.5))
    sink.write(event("evaluation", trained_tokens=4096, log_perplexity=2.69, seconds=1.0))
    sink.write(event("message", "not a number"))
    sink.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for tag in (b"train/loss", b"train/grad_norm", b"train/learning_rate", b"validation/log_perplexity"):
        assert content.count(tag) == 1, tag


def test_tensorboard_that_is_not_installed_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(InputError, match="--tensorboard needs tensorboardX: pip install tensorboardX"):
        TensorBoard(tmp_path)
