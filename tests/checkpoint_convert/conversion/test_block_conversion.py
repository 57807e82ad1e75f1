"""Blocks within the memory, values rounded as NumPy rounds them, every chunk written once."""

import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checkpoint_convert.conversion.block_conversion import BlockTask, Job, run_tasks, tasks_of
from checkpoint_convert.conversion.blocks import ArrayAxes, Side, choose_blocks
from checkpoint_convert.conversion.workspace import PAGE, Workspace, workspace_bytes, write_chunk
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.zarr_arrays import create_array, open_zarr
from stage.errors import InputError
from stage.outputs.digest import md5_file
from stage.outputs.manifest import Recipe
from stage.outputs.resumable_output import ResumableOutput, resumable_output

SHAPE = (130, 200)
FLOAT32, BFLOAT16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
RECIPE = Recipe("test", {}, [])


def transpose(folder: Path, values: np.ndarray[Any, Any], *, non_negative: bool = False) -> Job:
    """A job that transposes ``values``, from chunks of 50 x 60, to FP32 and BF16 in chunks of 40 x 65."""
    create_array(folder / "in", SHAPE, "float32", (50, 60)).write(values).result()
    sides = Side("A B", (50, 60)), Side("B A", (40, 65))
    targets = {"single": FLOAT32, "rounded": BFLOAT16}
    return Job(open_zarr(LocalFiles(folder), "in"), ArrayAxes({"A": 130, "B": 200}, *sides), targets, non_negative)


def convert(job: Job, work: ResumableOutput, workers: int = 1, memory_limit: int = 1 << 30) -> list[BlockTask]:
    choice = choose_blocks(memory_limit, workers, [job.axes])
    tasks = tasks_of([job], choice)
    run_tasks(tasks, choice, work)
    return tasks


@pytest.fixture
def work(tmp_path: Path) -> Iterator[ResumableOutput]:
    with resumable_output(tmp_path / "out", RECIPE) as begun:
        assert begun is not None
        yield begun


@pytest.mark.parametrize(("workers", "memory_limit"), [(1, 1 << 30), (3, 300_000), (1, 130_000)])
def test_every_chunk_is_the_transposed_values(
    workers: int, memory_limit: int, work: ResumableOutput, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    tasks = convert(transpose(tmp_path, values), work, workers, memory_limit)
    for name, dtype in (("single", FLOAT32), ("rounded", BFLOAT16)):
        for row, column in np.ndindex(5, 2):
            expected = values.T[40 * row : 40 * row + 40, 65 * column : 65 * column + 65].astype(dtype)
            path = work.path(f"{name}/{row}.{column}")
            assert path.read_bytes() == expected.tobytes()
            assert work.done[f"{name}/{row}.{column}"].md5 == md5_file(path)
    assert sorted(name for task in tasks for name in task.names) == sorted(work.done)
    assert sum(task.bytes for task in tasks) == sum(piece.bytes for piece in work.done.values()) == 6 * values.size


def test_chunks_that_are_there_are_not_written_again(work: ResumableOutput, tmp_path: Path) -> None:
    job = transpose(tmp_path, np.ones(SHAPE, np.float32))
    convert(job, work)
    work.path("rounded/3.1").unlink()
    work.reload()
    kept = {name: work.path(name).stat().st_ino for name in work.done if "/3." not in name}
    convert(job, work)
    assert len(work.done) == 20
    assert {name: work.path(name).stat().st_ino for name in kept} == kept


@pytest.mark.parametrize(
    ("value", "complaint"),
    [(np.nan, "nan at [70, 130], in chunk [1, 2]: not a number"), (-1.0, "-1.0 at [70, 130], in chunk [1, 2]: a neg")],
)
def test_values_that_cannot_be_are_named(value: float, complaint: str, work: ResumableOutput, tmp_path: Path) -> None:
    values = np.ones(SHAPE, np.float32)
    values[70, 130] = value
    with pytest.raises(InputError) as error:
        convert(transpose(tmp_path, values, non_negative=True), work)
    assert complaint in str(error.value)


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_is_said_and_what_is_there_is_kept(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, times = getattr(os, call), []

    def fail_at_the_tenth(*arguments: object) -> object:
        times.append(arguments)
        if len(times) >= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    job = transpose(tmp_path, np.ones(SHAPE, np.float32))
    with pytest.raises(OSError, match="No space left"), resumable_output(tmp_path / "out", RECIPE) as work:
        assert work is not None
        monkeypatch.setattr(os, call, fail_at_the_tenth)
        convert(job, work, memory_limit=130_000)
    monkeypatch.undo()
    with resumable_output(tmp_path / "out", RECIPE) as work:
        assert work is not None
        assert len(work.done) < 10
        convert(job, work)
        assert len(work.done) == 20


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("start", [0, 4])
def test_chunks_of_any_size(start: int, direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def open_buffered(path: Path, flags: int, mode: int = 0o666) -> int:
        if flags & os.O_DIRECT and not direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", open_buffered)
    with Workspace(4 * PAGE, 1).arrays([PAGE]) as (memory,):
        memory[...] = np.arange(PAGE)
        for size in (0, 1, PAGE - 1, PAGE, 3 * PAGE, 3 * PAGE + 512):
            data = memory.view(np.uint8)[start : start + size]
            write_chunk(tmp_path / str(size), data)
            assert (tmp_path / str(size)).read_bytes() == data.tobytes()


@pytest.mark.parametrize(("room", "at_once"), [(2, 8), (8, 2)])
def test_blocks_share_the_memory_and_wait_for_their_turn(room: int, at_once: int) -> None:
    counts = [5, PAGE, 1]
    workspace, used = Workspace(room * workspace_bytes(counts), at_once), set[int]()
    most = 0

    def use(number: int) -> None:
        nonlocal most
        with workspace.arrays(counts) as arrays:
            used.add(number)
            most = max(most, len(used))
            for array in arrays:
                assert array.ctypes.data % PAGE == 0
                array[...] = number
            time.sleep(0.005)
            assert [array.tolist() for array in arrays] == [[number] * count for count in counts]
            used.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(16)))
    assert most <= 2
