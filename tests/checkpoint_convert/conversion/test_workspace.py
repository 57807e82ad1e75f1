"""Files are written whole, past the page cache or not; chunks are read whole or refused."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.conversion.workspace import PAGE, FileWriter, Workspace, workspace_bytes

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
    finished = {}
    with FileWriter(tmp_path, lambda name, state: finished.update({name: state.st_size})) as writer:
        writer.write("file", memory[start : start + size])
    assert (tmp_path / "file").read_bytes() == VALUES[start : start + size].tobytes()
    assert finished == {"file": size}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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
    with FileWriter(tmp_path, lambda *_: None) as writer:
        writer.write("file", memory)
    assert len(refused) == 1
    assert (tmp_path / "file").read_bytes() == bytes(2 * PAGE)


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_what_fails_is_named_and_leaves_nothing(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    finished: list[str] = []
    real, times = getattr(os, call), []

    def fail_at_the_third(*arguments: object) -> object:
        times.append(arguments)
        if len(times) == 3:
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    data = np.arange(100, dtype=np.uint8)
    monkeypatch.setattr(os, call, fail_at_the_third)
    with (
        pytest.raises(OSError, match=rf"{os.strerror(number)}: .*/folder/[0-4]'"),
        FileWriter(tmp_path / "folder", lambda name, _: finished.append(name)) as writer,
    ):
        for name in "01234":
            writer.write(name, data)
    assert len(finished) < 5
    found = {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()}
    assert found == dict.fromkeys(finished, data.tobytes())
