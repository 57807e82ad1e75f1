"""Small files that are whole or not there, and read as data."""

import os
from pathlib import Path

import pytest

from benchmark.launch.small_files import MOST_BYTES, read_object, write_object
from benchmark.launch.stop_note import StopNote

NOTE = StopNote("time limit", 3, saved=True)


def test_object_is_read_back_and_its_folder_made(tmp_path: Path) -> None:
    write_object(tmp_path / "new" / "x.json", NOTE)
    assert read_object(tmp_path / "new" / "x.json") == {"by": "time limit", "steps": 3, "saved": True}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x.json"]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b" " * (MOST_BYTES + 1)])
def test_what_is_no_object_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert read_object(tmp_path / "x") is None


def test_pipes_and_folders_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [read_object(path) for path in (tmp_path / "pipe", tmp_path, tmp_path / "none")] == [None] * 3
