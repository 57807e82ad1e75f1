"""Blocks within the memory, values rounded as NumPy rounds them, every chunk written once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checkpoint_convert.conversion.block_conversion import BlockTask, Job, Target, run_tasks, tasks_of
from checkpoint_convert.conversion.blocks import ArrayAxes, Side, choose_blocks
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.zarr_arrays import create_array, open_zarr
from stage.errors import InputError
from stage.outputs.digest import md5_file
from stage.outputs.manifest import Recipe
from stage.outputs.resumable_output import ResumableOutput, resumable_output

SHAPE = (130, 200)
FLOAT32, BFLOAT16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)


def transpose(folder: Path, values: np.ndarray[Any, Any], *, non_negative: bool = False) -> Job:
    """A job that transposes ``values``, from chunks of 50 x 60, to FP32 and BF16 in chunks of 40 x 65."""
    create_array(folder / "in", SHAPE, "float32", (50, 60)).write(values).result()
    sides = Side((("A",), ("B",)), (50, 60)), Side((("B",), ("A",)), (40, 65))
    targets = (Target("single", FLOAT32), Target("rounded", BFLOAT16))
    return Job(open_zarr(LocalFiles(folder), "in"), ArrayAxes({"A": 130, "B": 200}, *sides), targets, non_negative)


def convert(job: Job, work: ResumableOutput, workers: int = 1, memory_limit: int = 1 << 30) -> list[BlockTask]:
    choice = choose_blocks(memory_limit, workers, [job.axes])
    tasks = tasks_of([job], choice)
    run_tasks(tasks, choice, work)
    return tasks


@contextmanager
def begun(folder: Path) -> Iterator[ResumableOutput]:
    with resumable_output(folder / "out", Recipe("test", {}, [])) as work:
        assert work is not None
        yield work


@pytest.mark.parametrize(("workers", "memory_limit"), [(1, 1 << 30), (3, 300_000), (1, 130_000)])
def test_every_chunk_is_the_transposed_values(workers: int, memory_limit: int, tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    with begun(tmp_path) as work:
        tasks = convert(transpose(tmp_path, values), work, workers, memory_limit)
        for name, dtype in (("single", FLOAT32), ("rounded", BFLOAT16)):
            for row in range(5):
                for column in range(2):
                    expected = values.T[40 * row : 40 * row + 40, 65 * column : 65 * column + 65].astype(dtype)
                    path = work.path(f"{name}/{row}.{column}")
                    assert path.read_bytes() == expected.tobytes()
                    assert work.done[f"{name}/{row}.{column}"].md5 == md5_file(path)
        assert sorted(name for task in tasks for name in task.names) == sorted(work.done)
        assert sum(task.bytes for task in tasks) == sum(piece.bytes for piece in work.done.values()) == 6 * values.size


def test_chunks_that_are_there_are_not_written_again(tmp_path: Path) -> None:
    with begun(tmp_path) as work:
        convert(transpose(tmp_path, np.ones(SHAPE, np.float32)), work)
        work.path("rounded/3.1").unlink()
        work.reload()
        kept = {name: work.path(name).stat().st_ino for name in work.done}
        convert(transpose(tmp_path, np.ones(SHAPE, np.float32)), work)
        assert (len(kept), len(work.done)) == (19, 20)
        assert {name: work.path(name).stat().st_ino for name in kept if "/3." not in name} == {
            name: inode for name, inode in kept.items() if "/3." not in name
        }


@pytest.mark.parametrize(
    ("value", "complaint"),
    [(np.nan, "nan at [70, 130], in chunk [1, 2]: not a number"), (-1.0, "-1.0 at [70, 130], in chunk [1, 2]: a neg")],
    ids=["nan", "negative"],
)
def test_values_that_cannot_be_are_named(value: float, complaint: str, tmp_path: Path) -> None:
    values = np.ones(SHAPE, np.float32)
    values[70, 130] = value
    job = transpose(tmp_path, values, non_negative=True)
    with pytest.raises(InputError) as error, begun(tmp_path) as work:
        convert(job, work)
    assert complaint in str(error.value)
    assert not (tmp_path / "out.partial").exists()
