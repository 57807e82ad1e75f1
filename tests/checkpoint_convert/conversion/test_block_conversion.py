"""Streaming: blocks within the memory, values rounded as NumPy rounds them, every chunk written once."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checkpoint_convert.conversion.block_choice import choose_blocks
from checkpoint_convert.conversion.block_sources import open_source
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.resuming.journal import Journal, WrittenFile
from checkpoint_convert.conversion.resuming.source_files import SourceFiles, state_of
from checkpoint_convert.conversion.streaming import Job, Target, run_jobs
from checkpoint_convert.formats.zarr_arrays import create_array
from checksums.md5_list import digest_folder
from stage.errors import InputError
from stage.task_shard import TaskShard

SHAPE = (130, 200)
FLOAT32, BFLOAT16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)


def transpose(
    folder: Path, values: np.ndarray[Any, Any], *, workers: int, memory_limit: int, non_negative: bool = False
) -> Job:
    """A job that transposes ``values``, from chunks of 50 x 60, to FP32 and BF16 in chunks of 40 x 65."""
    create_array(folder / "in", SHAPE, "float32", (50, 60)).write(values).result()
    source = open_source(folder / "in", SHAPE, like="nothing", readers=1, files=SourceFiles(folder, ["in"]))
    sides = Side((("A",), ("B",)), (50, 60)), Side((("B",), ("A",)), (40, 65))
    blocks = choose_blocks(memory_limit, workers, {"A": 130, "B": 200}, *sides)
    for name in ("single", "rounded"):
        (folder / "out" / name).mkdir(parents=True)
    return Job(source, blocks, (Target("single", FLOAT32), Target("rounded", BFLOAT16)), non_negative)


@pytest.mark.parametrize(("workers", "memory_limit"), [(1, 1 << 30), (3, 300_000), (1, 130_000)])
def test_every_chunk_is_the_transposed_values(workers: int, memory_limit: int, tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    job = transpose(tmp_path, values, workers=workers, memory_limit=memory_limit)
    assert job.bytes == 6 * values.size
    assert job.blocks.memory_bytes <= memory_limit
    journal = Journal(tmp_path / "journal", {})
    names = run_jobs([job], tmp_path / "out", journal)
    journal.close()
    for name, dtype in (("single", FLOAT32), ("rounded", BFLOAT16)):
        for row in range(5):
            for column in range(2):
                expected = values.T[40 * row : 40 * row + 40, 65 * column : 65 * column + 65].astype(dtype)
                assert (tmp_path / "out" / name / f"{row}.{column}").read_bytes() == expected.tobytes()
    found = {name: one.md5 for name, one in journal.written.items()}
    assert found == digest_folder(tmp_path / "out")
    assert sorted(names) == sorted(found)


def test_chunks_in_the_journal_are_not_written_again(tmp_path: Path) -> None:
    job = transpose(tmp_path, np.ones(SHAPE, np.float32), workers=1, memory_limit=1 << 30)
    journal = Journal(tmp_path / "journal", {})
    for name in ("single", "rounded"):
        for chunk in ("3.0", "3.1"):
            (tmp_path / "out" / name / chunk).write_text("as it was")
            state = state_of((tmp_path / "out" / name / chunk).stat())
            journal.note(f"{name}/{chunk}", WrittenFile("", state))
    run_jobs([job], tmp_path / "out", journal)
    journal.close()
    assert len(journal.written) == 20
    kept = [path for path in (tmp_path / "out").glob("*/*") if path.read_bytes() == b"as it was"]
    assert sorted(path.name for path in kept) == ["3.0", "3.0", "3.1", "3.1"]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [(np.nan, "nan at [70, 130], in chunk [1, 2]: not a number"), (-1.0, "-1.0 at [70, 130], in chunk [1, 2]: a neg")],
    ids=["nan", "negative"],
)
def test_values_that_cannot_be_are_named(value: float, complaint: str, tmp_path: Path) -> None:
    values = np.ones(SHAPE, np.float32)
    values[70, 130] = value
    job = transpose(tmp_path, values, workers=1, memory_limit=1 << 30, non_negative=True)
    journal = Journal(tmp_path / "journal", {})
    with pytest.raises(InputError) as error:
        run_jobs([job], tmp_path / "out", journal)
    journal.close()
    assert complaint in str(error.value)


def test_memory_for_less_than_one_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--memory-limit is too small: one block takes"):
        transpose(tmp_path, np.ones(SHAPE, np.float32), workers=1, memory_limit=50_000)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_shares_are_all_of_it_and_none_twice(count: int, tmp_path: Path) -> None:
    job = transpose(tmp_path, np.ones(SHAPE, np.float32), workers=1, memory_limit=130_000)
    journal = Journal(tmp_path / "journal", {})
    names: list[str] = []
    for index in range(count):
        names += run_jobs([job], tmp_path / "out", journal, shard=TaskShard(index, count))
    assert sorted(names) == sorted(digest_folder(tmp_path / "out"))
    assert len(names) == 20
