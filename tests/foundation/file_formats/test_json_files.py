"""JSON files: read into a dataclass, or refused in one line that names the file."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from foundation.errors import InputError
from foundation.file_formats.json_files import as_json, read_bounded, read_json


@dataclass(frozen=True)
class Note:
    name: str
    count: int
    tags: tuple[str, ...] = ()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_text(as_json(Note("a", 3, ("b",))))
    assert read_json(path, Note) == Note("a", 3, ("b",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "Input data was truncated"),
        (b'{"name": "a"}', "missing required field `count`"),
        (b'{"name": "a", "count": "3"}', "Expected `int`, got `str`"),
        (b'{"name": "a", "count": 1e400}', "out of range|Expected `int`"),
        (b"\xff\xfe", "malformed|invalid"),
        (b'{"name": "\xff", "count": 3}', "can't decode byte 0xff"),
        (b"[" * 100_000, "Expected `object`|nest"),
        (b'{"name": "' + b"a" * 2000 + b'", "count": 1}', "more than 1,000"),
    ],
)
def test_anything_else_is_one_line_with_the_path(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_json(path, Note, largest=1000 if len(content) > 1000 and content[:1] != b"[" else 1 << 20)
    assert str(path) in str(error.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe, not a regular file"):
        read_bounded(tmp_path / "pipe", 10)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none", Note)
