"""Boxes out of files of plain bytes: the values, and no more reads than rows that lie apart; only files are opened."""

import io
import os
from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.formats.boxes import Box, shape_of, whole_box
from checkpoint_convert.formats.stored_array import Values, copy_in_order, open_regular, read_box
from stage.errors import InputError


class CountedFile(io.BytesIO):
    """Notes how many bytes each read is asked for."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.lengths: list[int] = []

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # of the one kind that is read into
        self.lengths.append(len(buffer))
        return super().readinto(buffer)


@pytest.mark.parametrize(
    ("box", "reads"),
    [
        (whole_box((4, 8, 256)), [4 * 8 * 1024]),
        ((slice(1, 3), slice(2, 5), slice(0, 256)), [3 * 1024] * 2),
        ((slice(0, 1), slice(0, 2), slice(0, 128)), [512] * 2),
        ((slice(0, 1), slice(0, 2), slice(0, 4)), [2 * 1024]),  # runs shorter than a disk's sector
    ],
)
def test_rows_behind_each_other_are_one_read(box: Box, reads: list[int]) -> None:
    values = np.arange(4 * 8 * 256, dtype=np.float32).reshape(4, 8, 256)
    file = CountedFile(b"header" + values.tobytes() + b"more")
    into: Values = np.zeros((*shape_of(box), 2), np.float32)
    read_box(file, 6, values.shape, box, into[..., 1])  # which is not contiguous
    np.testing.assert_array_equal(into[..., 1], values[box])
    assert not into[..., 0].any()
    assert file.lengths == reads
    with pytest.raises(ValueError, match="the file ends before byte"):
        read_box(file, 20, values.shape, whole_box(values.shape), np.zeros_like(values))


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises((InputError, IsADirectoryError), match=name), open_regular(tmp_path / name):
            pass
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OSError, match=r"Input/output error: '.*file'"), open_regular(tmp_path / "file"):
        raise OSError(5, "Input/output error")  # reading from an open file names none


def test_a_copy_has_the_values_in_order() -> None:
    values = np.arange(3 * 70 * 130).reshape(3, 70, 130)
    for order in ((0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 0, 2)):
        copy = np.zeros([values.shape[axis] for axis in order], values.dtype)
        copy_in_order(values.transpose(order), copy)
        np.testing.assert_array_equal(copy, values.transpose(order))
