"""Chunks are written whole, past the page cache or not; what fails is raised where the work is done."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.conversion.chunk_writer import (
    PAGE,
    ChunkWriter,
    arrays_in,
    md5_of,
    new_workspace,
    workspace_bytes,
)
from stage.outputs.manifest import Recipe
from stage.outputs.resumable_output import ResumableOutput, resumable_output

VALUES = np.arange(4 * PAGE, dtype=np.float32).view(np.uint8)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[ResumableOutput]:
    with resumable_output(tmp_path / "out", Recipe("test", {}, [])) as begun:
        assert begun is not None
        yield begun


def test_arrays_begin_at_pages_of_their_own() -> None:
    counts = [5, PAGE, 1]
    arrays = arrays_in(new_workspace(workspace_bytes(counts)), counts)
    for number, array in enumerate(arrays):
        assert array.ctypes.data % PAGE == 0
        array[...] = number
    assert [array.tolist() for array in arrays] == [[number] * count for number, count in enumerate(counts)]


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("start", [0, 4])
def test_chunks_of_any_size(start: int, direct: bool, work: ResumableOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = arrays_in(new_workspace(VALUES.nbytes), [VALUES.nbytes // 4])[0].view(np.uint8)
    memory[...] = VALUES
    opened = os.open

    def open_buffered(path: Path, flags: int, mode: int = 0o666) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, mode)

    if not direct:
        monkeypatch.setattr(os, "open", open_buffered)
    chunks = {f"a/{size}": memory[start : start + size] for size in (0, 1, PAGE - 1, PAGE, 3 * PAGE, 3 * PAGE + 512)}
    with ChunkWriter(work) as writer:
        for name, data in chunks.items():
            writer.write(name, data, md5_of(data.data))
    assert {name: work.path(name).read_bytes() for name in work.done} == {
        name: data.tobytes() for name, data in chunks.items()
    }
    assert not list((work.folder / "writing").iterdir())


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_what_fails_is_raised(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, times = getattr(os, call), []

    def fail_at_the_third(*arguments: object) -> object:
        times.append(arguments)
        if len(times) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    recipe, data = Recipe("test", {}, []), np.arange(100, dtype=np.uint8)
    with (
        pytest.raises(OSError, match="No space left on device"),
        resumable_output(tmp_path / "out", recipe) as work,
    ):
        assert work is not None
        with ChunkWriter(work) as writer:
            writer.write("0", data, md5_of(data.data))
        monkeypatch.setattr(os, call, fail_at_the_third)
        with ChunkWriter(work) as writer:
            for name in "12345":
                writer.write(name, data, md5_of(data.data))
    monkeypatch.undo()
    with resumable_output(tmp_path / "out", recipe) as work:
        assert work is not None
        assert "0" in work.done
        assert len(work.done) < 6
