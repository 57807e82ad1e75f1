"""Parts of an array in a file: what NumPy would give, in whatever pieces the reads come."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.token_files.file_array import FileArray, read_at
from foundation.errors import InputError

MEND = "make it again"


def _written(folder: Path, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", offset: int) -> FileArray:
    path = folder / "f"
    path.write_bytes(b"h" * offset + array.tobytes() + b"t")
    return FileArray(io.FileIO(path), array.dtype, offset, array.shape, mend=MEND)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 20),
    columns=st.sampled_from([None, 1, 2]),
    dtype=st.sampled_from(["<i4", "<i8", "u1", "<u4"]),
    offset=st.integers(0, 40),
    first=st.one_of(st.none(), st.integers(-25, 25)),
    stop=st.one_of(st.none(), st.integers(-25, 25)),
)
def test_rows_are_those_of_the_array(
    rows: int,
    columns: int | None,
    dtype: str,
    offset: int,
    first: int | None,
    stop: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shape = (rows,) if columns is None else (rows, columns)
    array = np.random.default_rng(rows).integers(0, 200, size=shape).astype(dtype)
    found = _written(tmp_path_factory.mktemp("a"), array, offset)
    np.testing.assert_array_equal(found[first:stop], array[first:stop], strict=True)
    np.testing.assert_array_equal(np.asarray(found), array, strict=True)
    assert len(found) == rows
    assert (found.dtype, found.shape) == (array.dtype, shape)
    for row in range(-rows, rows):
        np.testing.assert_array_equal(found[row], array[row])
    for row in (rows, -rows - 1):
        with pytest.raises(IndexError, match=f"row {row} of {rows}"):
            found[row]


def test_short_reads_go_on_and_others_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, real = _written(tmp_path, np.arange(8), 5), os.preadv
    monkeypatch.setattr(os, "preadv", lambda handle, data, offset: real(handle, [data[0][:7]], offset))
    assert found[:].tolist() == list(range(8))

    def bad_disk(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", bad_disk)
    with pytest.raises(OSError, match=r"Input/output error: '.*/f'"):
        found[0]


def test_a_file_that_ends_before_is_one_line(tmp_path: Path) -> None:
    found = _written(tmp_path, np.arange(8), 5)
    os.truncate(tmp_path / "f", 30)
    assert int(found[2]) == 2
    for rows in (3, slice(None)):
        with pytest.raises(InputError, match=r"/f: became shorter while it was read; make it again"):
            found[rows]
    with io.FileIO(tmp_path / "f") as file, pytest.raises(InputError, match="became shorter"):
        read_at(file, 1 << 40, memoryview(bytearray(1)), MEND)
