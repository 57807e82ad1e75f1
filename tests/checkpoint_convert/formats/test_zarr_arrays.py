"""Zarr arrays: any box is what it is, however the chunks are stored; what is no array or not whole is named."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts

from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.stored_array import Values
from checkpoint_convert.formats.zarr_arrays import create_array, open_zarr, zarr_array
from foundation.errors import InputError

SHAPE = (5, 20, 33)


def write(folder: Path, values: Values, **fields: object) -> Path:
    metadata = {"dtype": "<f4", "shape": list(SHAPE), "chunks": [2, 8, 33], "compressor": None, **fields}
    kvstore = {"driver": "file", "path": str(folder / "a")}
    ts.open({"driver": "zarr", "kvstore": kvstore, "metadata": metadata}, create=True).result().write(values).result()
    return folder / "a"


def change_metadata(path: Path, **fields: object) -> None:
    place = path / ".zarray"
    place.write_text(json.dumps({**json.loads(place.read_text()), **fields}))


def random_values(dtype: Any = np.float32) -> Values:
    return np.random.default_rng(0).standard_normal(SHAPE).astype(dtype)


@pytest.mark.parametrize(
    ("order", "compressor"), [("C", None), ("C", "gzip"), ("C", "zstd"), ("F", None), ("F", "gzip")]
)
@pytest.mark.parametrize(("dtype", "separator"), [("<f4", "."), (">f4", "/"), ("bfloat16", "/")])
def test_any_box_of_any_chunks(compressor: str | None, dtype: str, separator: str, order: str, tmp_path: Path) -> None:
    values = random_values(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)
    packing = None if compressor is None else {"id": compressor}
    array = zarr_array(
        write(tmp_path, values, compressor=packing, dtype=dtype, dimension_separator=separator, order=order)
    )
    assert (array.shape, array.dtype, array.chunks) == (SHAPE, values.dtype, (2, 8, 33))
    assert array.missing_chunks == 0
    assert array.in_part == (compressor is None and order == "C" and dtype != ">f4")
    random = np.random.default_rng(0)
    drawn = [[sorted(random.integers(0, size + 1, size=2).tolist()) for size in SHAPE] for _ in range(10)]
    boxes = [tuple(slice(start, stop) for start, stop in ends) for ends in drawn]
    for box in (whole_box(SHAPE), (slice(2, 4), slice(8, 16), slice(0, 33)), *boxes):
        np.testing.assert_array_equal(array.read(box), values[box])


@pytest.mark.parametrize("packed", [True, False])
def test_chunks_of_the_wrong_size_are_refused(packed: bool, tmp_path: Path) -> None:
    values = random_values()
    path = write(tmp_path, values, compressor={"id": "gzip", "level": 1} if packed else None, chunks=list(SHAPE))
    sizes = (values.tobytes()[:-4], values.tobytes() + b"more", b"")
    trailers = (b"more", bytes(300_000), gzip.compress(b""))
    for content in (
        *(gzip.compress(data) if packed else data for data in sizes),
        *((gzip.compress(values.tobytes()) if packed else values.tobytes()) + trailer for trailer in trailers),
    ):
        (path / "0.0.0").write_bytes(content)
        with pytest.raises(InputError, match=r"a: chunk 0\.0\.0 cannot be read \(it (does not unpack to|has \d+ by)"):
            zarr_array(path).read((slice(0, 1), slice(0, 1), slice(0, 1)))
    (path / "0.0.0").write_bytes(b"\x1f\x8bdamaged")
    with pytest.raises(InputError, match=r"a: chunk 0\.0\.0 cannot be read"):
        zarr_array(path).read(whole_box(SHAPE))


@pytest.mark.parametrize("compressor", [None, {"id": "gzip", "level": 1}], ids=["plain", "gzip"])
def test_missing_chunk_is_not_zeros_unless_it_is_said(compressor: dict[str, Any] | None, tmp_path: Path) -> None:
    """As zarr has it: nobody leaves a chunk out of a checkpoint. Nor is one waited for that is a pipe."""
    path = write(tmp_path, np.ones(SHAPE, np.float32), compressor=compressor)
    files = LocalFiles(tmp_path)
    files.ask(["a/0.0.0"])
    (path / "0.1.0").unlink()
    array, box = zarr_array(path), (slice(0, 2), slice(0, 16), slice(0, 33))
    assert array.missing_chunks == 1
    assert array.read((slice(0, 2), slice(0, 8), slice(0, 33))).all()
    with pytest.raises(InputError, match=r"a: chunk 0\.1\.0 is missing; the checkpoint is not whole"):
        array.read(box)
    zeros = replace(open_zarr(files, "a"), absent_are_zeros=True).read(box)
    assert zeros[:, :8].all()
    assert not zeros[:, 8:].any()
    os.mkfifo(path / "0.1.0")
    with pytest.raises(InputError, match=r"0\.1\.0: not a regular file"):
        array.read(box)


def test_a_number_without_axes(tmp_path: Path) -> None:
    create_array(tmp_path / "a", (), "uint32", ()).write(np.uint32(4000)).result()
    array = zarr_array(tmp_path / "a")
    assert (array.read(()).item(), array.chunk_count, array.missing_chunks) == (4000, 1, 0)
    (tmp_path / "a" / "0").unlink()
    with pytest.raises(InputError, match="a: chunk 0 is missing"):
        array.read(())


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"shape": [1] * 20_000, "chunks": [1] * 20_000}, "20,000 axes"),
        ({"shape": [-1, 3]}, "expected whole numbers"),
        ({"shape": [1 << 62, 3]}, "more than 1 EiB"),
        ({"shape": 7}, "not a zarr array"),
        ({"chunks": [0, 3]}, "do not go together"),
        ({"chunks": [2, 1 << 63]}, "more than 1 EiB"),
        ({"dtype": "<f99"}, "not a zarr array"),
        ({"dtype": "<c8"}, "values of .*, expected numbers"),
        ({"dtype": [["a", "<f4"]]}, "a: "),
        ({"compressor": {"id": "unheard of"}}, "not a zarr array"),
    ],
)
def test_metadata_that_cannot_be_is_refused_in_a_line(fields: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    create_array(tmp_path / "a", (4, 3), "float32", (2, 3))
    change_metadata(tmp_path / "a", **fields)
    with pytest.raises(InputError, match=complaint) as error:
        zarr_array(tmp_path / "a")
    assert len(str(error.value)) < 500
    for text in (b"[" * 100_000, b"{", b'{"\xff": 1}'):
        (tmp_path / "a" / ".zarray").write_bytes(text)
        with pytest.raises(InputError, match=r"\.zarray: "):
            zarr_array(tmp_path / "a")
    with pytest.raises(InputError, match="none: array is missing"):
        zarr_array(tmp_path / "none")
