"""Files of chunks: there, regular, and never waited for."""

import os
from pathlib import Path

import pytest

from checkpoint_convert.formats.chunk_files import chunk_key, open_chunk, require_chunk
from stage.errors import InputError


def test_names_of_chunks() -> None:
    assert (chunk_key((1, 0, 2), "."), chunk_key((1, 0), "/"), chunk_key((), ".")) == ("1.0.2", "1/0", "0")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"x")
    os.close(open_chunk(tmp_path / "0"))
    require_chunk(tmp_path / "0")
    os.mkfifo(tmp_path / "1")
    (tmp_path / "2").mkdir()
    (tmp_path / "3").symlink_to(tmp_path / "nowhere")
    for name, complaint in (
        ("1", "not a regular file"),
        ("2", "not a regular file"),
        ("3", "chunk 3 is missing"),
        ("4", "chunk 4 is missing"),
    ):
        for look in (open_chunk, require_chunk):
            with pytest.raises(InputError, match=complaint):
                look(tmp_path / name)
