"""Blocks, however an array is cut, are whole output chunks and keep to the memory; every chunk is written once, rounded
as NumPy rounds."""

import errno
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_convert.conversion.block_conversion import Job, block_tasks
from checkpoint_convert.conversion.blocks import ArrayAxes, Side, bytes_to_read_once, choose_blocks, cut_array
from checkpoint_convert.conversion.workspace import PAGE, Workspace, write_chunk
from checkpoint_convert.formats.array_table import ARRAYS, chunk_shape
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.summed_output import FileTask
from checkpoint_convert.formats.zarr_arrays import create_array, open_zarr
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import Recipe
from foundation.outputs.resumable_output import ResumableOutput, resumable_output
from foundation.progress import Meter

SHAPE = (130, 200)
FLOAT32, BFLOAT16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
RECIPE = Recipe("test", {}, [])


def transpose(folder: Path, values: np.ndarray[Any, Any], *, non_negative: bool = False) -> Job:
    """A job that transposes ``values``, from chunks of 50 x 60, to FP32 and BF16 in chunks of 40 x 65."""
    create_array(folder / "in", SHAPE, "float32", (50, 60)).write(values).result()
    sides = Side("A B", (50, 60)), Side("B A", (40, 65))
    targets = {"single": FLOAT32, "rounded": BFLOAT16}
    axes = ArrayAxes({"A": 130, "B": 200}, *sides)
    return Job(open_zarr(LocalFiles(folder), "in"), SHAPE, axes, targets, non_negative)


def convert(job: Job, work: ResumableOutput, workers: int = 1, memory_limit: int = 1 << 30) -> list[FileTask]:
    tasks, threads = block_tasks([job], workers, memory_limit)
    meter = Meter(1, "bytes", None, lambda _: None, 1000)
    with ThreadPoolExecutor(threads) as pool:
        left = [task for task in tasks if work.missing(task.names)]
        for pieces in pool.map(lambda task: task.make(work, meter), left):
            work.add(pieces)
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


def test_a_full_disk_names_the_file_and_leaves_none(
    work: ResumableOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    job = transpose(tmp_path, np.ones(SHAPE, np.float32))
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(OSError, match=r"No space left on device: '.*/pieces/single/"):
        convert(job, work)
    monkeypatch.undo()
    assert not list((work.folder / "writing").iterdir())


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


SIZES = st.fixed_dictionaries(
    {"L": st.integers(1, 5), "C": st.just(3), "N": st.integers(1, 5), "D": st.integers(1, 6), "V": st.integers(1, 40)}
)
TURNED = ArrayAxes({"A": 64, "B": 60}, Side("A B", (64, 6)), Side("B A", (60, 4)))
"""Every output chunk needs all input chunks: only the whole array reads each once."""


@settings(max_examples=300)
@given(SIZES, st.data())
def test_blocks_cover_every_output_chunk_once(sizes: dict[str, int], data: st.DataObject) -> None:
    sizes = {**sizes, "H": sizes["N"] * sizes["D"], "F": 4 * sizes["N"] * sizes["D"], "P": 7}
    array = data.draw(st.sampled_from(ARRAYS))
    layouts = [(array.paxml_shape(sizes), array.paxml_axes), (array.megatron_shape(sizes), array.megatron_axes)]
    (from_shape, from_layout), (shape, layout) = data.draw(st.permutations(layouts))
    source = Side(from_layout, tuple(data.draw(st.integers(1, size)) for size in from_shape))
    axes = ArrayAxes(sizes, source, Side(layout, chunk_shape(shape)))
    most = data.draw(st.integers(0, 5000))
    chosen = cut_array(axes, most_items=most, comfortable_items=data.draw(st.integers(0, 900)))
    assert math.prod(chosen.block) <= most or chosen.block == chosen.unit
    keys = []
    for block in chosen.blocks():
        covered = math.prod(part.stop - part.start for part in axes.merged(block, source))
        assert covered == math.prod(part.stop - part.start for part in block)
        for unit in chosen.units(block):
            for key, within in axes.files(unit):
                keys.append(key)
                assert [part.stop - part.start for part in within] == list(axes.target.chunks)
    grid = [size // chunk for size, chunk in zip(shape, axes.target.chunks, strict=True)]
    assert sorted(keys) == sorted(".".join(map(str, index)) for index in np.ndindex(*grid))


def test_more_workers_do_not_read_the_input_more_often() -> None:
    once = bytes_to_read_once([TURNED])
    for workers in (1, 2, 5, 16, 224):
        for memory in (once, once + 1, 3 * once, 100 * once):
            choice = choose_blocks(memory, workers, [TURNED])
            assert choice.passes == 1
            assert choice.memory_bytes <= memory
            assert choice.at_once <= workers


def test_where_memory_is_short_it_is_kept_to() -> None:
    for memory in range(30_000, 90_000, 5_000):
        assert choose_blocks(memory, 8, [TURNED]).memory_bytes <= memory
    with pytest.raises(InputError, match=r"--memory-limit is too small: a block .* pass 1MiB or more"):
        choose_blocks(4096, 8, [TURNED])
