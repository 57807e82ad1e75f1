"""Boxes out of files of plain bytes: the values, and no more reads than rows that lie apart."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint_convert.formats.boxes import shape_of, whole_box
from checkpoint_convert.formats.byte_ranges import read_box
from stage.errors import InputError


def _values(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_box_at_an_offset_of_a_file(tmp_path: Path) -> None:
    values = _values((3, 4, 256))
    (tmp_path / "f").write_bytes(b"header" + values.tobytes() + b"more")
    box = (slice(1, 3), slice(1, 2), slice(3, 200))
    found = read_box(tmp_path / "f", 6, (3, 4, 256), values.dtype, box)
    np.testing.assert_array_equal(found, values[box])
    assert found.shape == shape_of(box)


def test_rows_behind_each_other_are_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = _values((4, 8, 256))
    (tmp_path / "f").write_bytes(values.tobytes())
    lengths: list[int] = []
    read = os.preadv

    def counted(handle: int, buffers: Any, offset: int) -> int:
        lengths.append(len(buffers[0]))
        return read(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", counted)
    for box, expected in (
        (whole_box(values.shape), [values.nbytes]),
        ((slice(1, 3), slice(2, 5), slice(0, 256)), [3 * 1024] * 2),
        ((slice(0, 1), slice(0, 2), slice(0, 128)), [512] * 2),
        ((slice(0, 1), slice(0, 2), slice(0, 4)), [2 * 1024]),  # runs shorter than a disk's sector
    ):
        lengths.clear()
        np.testing.assert_array_equal(read_box(tmp_path / "f", 0, values.shape, values.dtype, box), values[box])
        assert lengths == expected


def test_file_of_another_size_is_refused(tmp_path: Path) -> None:
    values = _values((2, 3))
    (tmp_path / "f").write_bytes(values.tobytes() + b"x")
    box = whole_box((2, 3))
    np.testing.assert_array_equal(read_box(tmp_path / "f", 0, (2, 3), values.dtype, box), values)
    with pytest.raises(InputError, match=r"25 bytes, expected 24\); verify the checkpoint"):
        read_box(tmp_path / "f", 0, (2, 3), values.dtype, box, alone=True)
    with pytest.raises(InputError, match="25 bytes, expected 26"):
        read_box(tmp_path / "f", 2, (2, 3), values.dtype, box)
    with pytest.raises(InputError, match="chunk none is missing"):
        read_box(tmp_path / "none", 0, (2, 3), values.dtype, box)
