"""Chunks of the source are read whole or refused, and none may be missing."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts

from checkpoint_convert.conversion.block_sources import BlockSource, open_source
from checkpoint_convert.conversion.source_files import LocalFiles
from stage.errors import InputError

SHAPE = (5, 20, 33)
WHOLE = (slice(0, 5), slice(0, 20), slice(0, 33))


def opened(folder: Path, kept: tuple[int, ...] = SHAPE, *, zeros: bool = False) -> BlockSource:
    files = LocalFiles(folder, ["a"])
    return open_source(folder / "a", kept, SHAPE, files, like="b", mend="mend it", absent_are_zeros=zeros)


def write(folder: Path, values: np.ndarray[Any, Any], **fields: object) -> None:
    metadata = {"dtype": "<f4", "shape": list(SHAPE), "chunks": [2, 8, 33], "compressor": None, **fields}
    kvstore = {"driver": "file", "path": str(folder / "a")}
    ts.open({"driver": "zarr", "kvstore": kvstore, "metadata": metadata}, create=True).result().write(values).result()


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("compressor", [None, "gzip", "zstd", "blosc"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_box_of_any_chunks(compressor: str | None, separator: str, order: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    packing = None if compressor is None else {"id": compressor}
    write(tmp_path, values, compressor=packing, dimension_separator=separator, order=order)
    source = opened(tmp_path)
    for box in (
        WHOLE,
        (slice(2, 4), slice(8, 16), slice(0, 33)),  # one whole chunk
        (slice(1, 5), slice(3, 17), slice(5, 6)),
    ):
        found = np.empty([part.stop - part.start for part in box], np.float32)
        source.read(box, found)
        np.testing.assert_array_equal(found, values[box])


@pytest.mark.parametrize("packed", [True, False])
def test_chunks_of_the_wrong_size_are_refused(packed: bool, tmp_path: Path) -> None:
    values = np.arange(5 * 20 * 33, dtype="<f4").reshape(SHAPE)
    write(tmp_path, values, compressor={"id": "gzip", "level": 1} if packed else None, chunks=list(SHAPE))
    chunk, read = tmp_path / "a" / "0.0.0", np.empty(SHAPE, np.float32)
    for data in (values.tobytes()[:-4], values.tobytes() + b"more", b""):
        chunk.write_bytes(gzip.compress(data) if packed else data)
        with pytest.raises(ValueError, match=r"chunk 0\.0\.0: it (does not unpack to 13200 bytes|has \d+ bytes)"):
            opened(tmp_path).read(WHOLE, read)
    chunk.write_bytes(b"\x1f\x8bdamaged")
    with pytest.raises(ValueError, match=r"chunk 0\.0\.0"):
        opened(tmp_path).read(WHOLE, read)


@pytest.mark.parametrize("separator", [".", "/"])
def test_a_chunk_that_is_missing(separator: str, tmp_path: Path) -> None:
    write(tmp_path, np.ones(SHAPE, np.float32), dimension_separator=separator)
    box, zeros = (slice(2, 4), slice(16, 20), slice(0, 33)), np.ones((2, 4, 33), np.float32)
    key = separator.join("120")
    before = opened(tmp_path)
    (tmp_path / "a" / key).unlink()
    with pytest.raises(InputError, match=f"a: chunk {re.escape(key)} is missing; mend it"):
        opened(tmp_path)
    opened(tmp_path, (5, 16, 33))  # the missing one is not kept
    with pytest.raises(InputError, match="is missing; the checkpoint is not whole"):
        before.read(box, zeros)  # it vanished meanwhile
    source = opened(tmp_path, zeros=True)
    source.read(box, zeros)
    assert (source.zero_chunks, bool(zeros.any())) == (1, False)
    os.mkfifo(tmp_path / "a" / key)
    with pytest.raises(InputError, match="is missing"):
        opened(tmp_path)


def test_zeros_are_not_taken_where_the_fill_value_is_another(tmp_path: Path) -> None:
    write(tmp_path, np.ones(SHAPE, np.float32), fill_value=1.5)
    min(path for path in (tmp_path / "a").iterdir() if path.name != ".zarray").unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"is missing; fetch it again \(its fill_value says"):
        opened(tmp_path, zeros=True)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [({"shape": [5, 20, 34]}, r"shape \[5, 20, 34\], expected \[5, 20, 33\] like b"), ({"dtype": "<f8"}, "float64")],
)
def test_another_shape_or_dtype_is_refused(fields: dict[str, object], complaint: str, tmp_path: Path) -> None:
    write(tmp_path, np.ones(SHAPE, np.float32))
    path = tmp_path / "a" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    with pytest.raises(InputError, match=complaint):
        opened(tmp_path)
