"""Stored arrays: any box is what it is, however the array is stored; what cannot be read is refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.stored_array import zarr_array
from checkpoint_convert.formats.zarr_arrays import create_array
from stage.errors import InputError


def _values(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("compressor", [None, {"id": "gzip", "level": 1}], ids=["plain", "gzip"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_any_box_of_any_array_is_what_it_is(compressor: dict[str, Any] | None, dtype: str, tmp_path: Path) -> None:
    shape, chunks = (5, 70, 33), (2, 32, 33)  # the last chunks reach beyond the array
    store = create_array(tmp_path / "a", shape, dtype, chunks, compressor)
    store.write(_values(shape).astype(store.dtype.numpy_dtype)).result()
    array = zarr_array(tmp_path / "a")
    expected = array.read(whole_box(shape))
    np.testing.assert_array_equal(expected, _values(shape).astype(expected.dtype))
    random = np.random.default_rng(0)
    for _ in range(50):
        ends = [sorted(random.integers(0, size + 1, size=2).tolist()) for size in shape]
        box = tuple(slice(start, stop) for start, stop in ends)
        np.testing.assert_array_equal(array.read(box), expected[box])


@pytest.mark.parametrize("compressor", [None, {"id": "gzip", "level": 1}], ids=["plain", "gzip"])
def test_missing_chunk_is_not_zeros(compressor: dict[str, Any] | None, tmp_path: Path) -> None:
    """As zarr has it: nobody leaves a chunk out of a checkpoint. Nor is one waited for that is a pipe."""
    path = tmp_path / "a"
    create_array(path, (4, 4), "float32", (2, 4), compressor).write(np.ones((4, 4), np.float32)).result()
    array = zarr_array(path)
    (path / "1.0").unlink()
    assert array.on_disk()[1] == 1
    assert array.read((slice(0, 2), slice(0, 4))).sum() == 8
    with pytest.raises(InputError, match=r"a: chunk 1\.0 is missing; the checkpoint is not whole"):
        array.read(whole_box((4, 4)))
    os.mkfifo(path / "1.0")
    with pytest.raises(InputError, match=r"1\.0: not a regular file"):
        array.read(whole_box((4, 4)))


@pytest.mark.parametrize("dtype", ["<c8", "|S4", [["a", "<f4"]], "<M8[s]"])
def test_values_that_are_no_numbers_are_refused(dtype: Any, tmp_path: Path) -> None:
    create_array(tmp_path / "a", (4,), "float32", (2,))
    path = tmp_path / "a" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dtype": dtype}))
    with pytest.raises(InputError, match=r"a: (values of .*, expected numbers|not a zarr array)"):
        zarr_array(tmp_path / "a")


def test_a_number_without_axes(tmp_path: Path) -> None:
    create_array(tmp_path / "a", (), "uint32", ()).write(np.uint32(4000)).result()
    array = zarr_array(tmp_path / "a")
    assert (array.read(()).item(), array.pieces, array.on_disk()) == (4000, 1, (4, 0))
    (tmp_path / "a" / "0").unlink()
    with pytest.raises(InputError, match="a: chunk 0 is missing"):
        array.read(())


@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""],
    ids=["shorter", "longer", "empty"],
)
def test_chunk_of_another_size_is_refused(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    create_array(tmp_path / "a", (4, 4), "float32", (2, 4)).write(np.ones((4, 4), np.float32)).result()
    path = tmp_path / "a" / "1.0"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=r"1\.0: a chunk cannot be read \(\d+ bytes, expected 32\)"):
        zarr_array(tmp_path / "a").read((slice(2, 3), slice(0, 1)))


def test_fortran_order_is_not_read_as_c_order(tmp_path: Path) -> None:
    create_array(tmp_path / "a", (4, 4), "float32", (2, 4)).write(_values((4, 4))).result()
    path = tmp_path / "a" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), "order": "F"}))
    first = zarr_array(tmp_path / "a").read((slice(0, 2), slice(0, 4)))
    np.testing.assert_array_equal(first, np.arange(8).reshape(4, 2).T)


def test_huge_compressed_chunk_takes_no_memory(tmp_path: Path) -> None:
    create_array(tmp_path / "a", (1 << 40,), "float32", (1 << 40,), {"id": "gzip", "level": 1})
    with pytest.raises(InputError, match="more than 1 GiB each, cannot be read in part"):
        zarr_array(tmp_path / "a")
