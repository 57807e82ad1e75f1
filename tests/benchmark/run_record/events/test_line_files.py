"""Files of whole lines, whatever cut them short before."""

import errno
import json
import os
from pathlib import Path

import pytest

from benchmark.run_record.events.line_files import JsonLines, LineFile
from benchmark.run_record.events.recorded_events import read_events
from tests.benchmark.run_record.events.recorder import event


def test_line_cut_by_a_full_disk_is_finished_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.pwrite, [5]

    def into_little_room(handle: int, block: bytes, offset: int) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(handle, block[: room[0]], offset)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", into_little_room)
    file = LineFile(tmp_path / "log")
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
    file = LineFile(path)
    file.cut(5)
    assert path.read_bytes() == b"kept\n"
    file.cut(500)  # a checkpoint knew of more than reached the disk
    file.write(b"more")
    assert path.read_bytes() == b"kept\nmore\n"
    path.write_bytes(b'{"whole": 1}\n{"cut": ')
    LineFile(path).write(b"{}")
    assert path.read_bytes() == b'{"whole": 1}\n{"cut": \n{}\n'
    file = LineFile(path)
    file.cut(16)  # in a line
    assert path.read_bytes() == b'{"whole": 1}\n{"c\n'
    file.cut(0)
    assert path.read_bytes() == b""


def test_events_are_one_object_per_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"key": "of a killed ru')
    sink = JsonLines(path)
    sink.write(event("step", loss=2.5))
    sink.write(event("inputs", {"a": 1}))
    sink.close()
    cut, *lines = path.read_text().splitlines()
    assert cut == '{"key": "of a killed ru'
    expected = {"time_ms": 1_700_000_000_000, "key": "step", "kind": "POINT_IN_TIME", "value": None, "loss": 2.5}
    assert list(json.loads(lines[0]).items()) == list(expected.items())
    assert [one.key for one in read_events(path)] == ["step", "inputs"]
