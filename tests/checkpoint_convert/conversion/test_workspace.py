"""Files are written whole, past the page cache or not; chunks are read whole or refused."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.conversion.workspace import PAGE, Workspace, workspace_bytes, write_file

VALUES = np.arange(4 * PAGE, dtype=np.float32).view(np.uint8)


def test_arrays_begin_at_pages_of_their_own() -> None:
    counts = [5, PAGE, 1]
    arrays = Workspace(workspace_bytes(counts)).arrays(counts)
    for number, array in enumerate(arrays):
        assert array.ctypes.data % PAGE == 0
        array[...] = number
    assert [array.tolist() for array in arrays] == [[number] * count for number, count in enumerate(counts)]


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, 3 * PAGE, 3 * PAGE + 512])
@pytest.mark.parametrize("start", [0, 4])
def test_files_of_any_size(size: int, start: int, tmp_path: Path) -> None:
    memory = Workspace(VALUES.nbytes).arrays([VALUES.nbytes // 4])[0].view(np.uint8)
    memory[...] = VALUES
    (tmp_path / "file").write_bytes(b"longer than what replaces it" * PAGE)
    write_file(tmp_path / "file", memory[start : start + size])
    assert (tmp_path / "file").read_bytes() == VALUES[start : start + size].tobytes()


def test_file_system_that_only_writes_through_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[int] = []
    opened = os.open

    def open_buffered(path: Path, flags: int, mode: int) -> int:
        if flags & os.O_DIRECT:
            refused.append(flags)
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", open_buffered)
    memory = Workspace(2 * PAGE).arrays([PAGE // 2])[0].view(np.uint8)
    write_file(tmp_path / "file", memory)
    assert len(refused) == 1
    assert (tmp_path / "file").read_bytes() == bytes(2 * PAGE)
