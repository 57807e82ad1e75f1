"""Appending past the page cache gives the same bytes as appending through it."""

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stage.direct_writer import BLOCK_BYTES, DirectWriter

VALUES = np.random.default_rng(1).integers(0, 1 << 16, BLOCK_BYTES + 1000, dtype=np.uint16)


def write(path: Path, parts: Iterable[np.ndarray[Any, Any]]) -> None:
    with closing(DirectWriter(path)) as file:
        for part in parts:
            file.write(part.data)
        file.flush()


@pytest.mark.parametrize("cuts", [[0], [5, 5, 7], [BLOCK_BYTES // 2], [BLOCK_BYTES // 2 - 1, BLOCK_BYTES]])
def test_parts_of_any_size(cuts: list[int], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"longer than what replaces it" * BLOCK_BYTES)
    write(tmp_path / "file", np.split(VALUES, cuts))
    assert (tmp_path / "file").read_bytes() == VALUES.tobytes()


@pytest.mark.parametrize("count", [0, 1, BLOCK_BYTES // 2, BLOCK_BYTES])
def test_files_of_any_size(count: int, tmp_path: Path) -> None:
    write(tmp_path / "file", [VALUES[:count]])
    assert (tmp_path / "file").read_bytes() == VALUES[:count].tobytes()


@pytest.mark.parametrize("at", ["opening", "writing"])
def test_file_system_that_only_writes_through_the_page_cache(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    set_flags, write_some = fcntl.fcntl, os.write

    def refuse(where: str) -> None:
        refused.append(where)
        raise OSError(errno.EINVAL, "Invalid argument")

    def fcntl_(handle: int, command: int, argument: int = 0) -> int:
        if at == "opening" and argument & os.O_DIRECT:
            refuse(at)
        return set_flags(handle, command, argument)

    def write_(handle: int, data: memoryview) -> int:
        if at == "writing" and set_flags(handle, fcntl.F_GETFL) & os.O_DIRECT:
            refuse(at)
        return write_some(handle, data)

    monkeypatch.setattr(fcntl, "fcntl", fcntl_)
    monkeypatch.setattr(os, "write", write_)
    write(tmp_path / "file", [VALUES, VALUES])
    assert refused == [at]
    assert (tmp_path / "file").read_bytes() == VALUES.tobytes() * 2


def test_other_errors_are_raised() -> None:
    full = "No space left on device: '/dev/full'"
    with closing(DirectWriter(Path("/dev/full"))) as file, pytest.raises(OSError, match=full):
        file.write(VALUES.data)
