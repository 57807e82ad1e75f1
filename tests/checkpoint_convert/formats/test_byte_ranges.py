"""Boxes out of files of plain bytes: the values, and no more reads than rows that lie apart; only files are opened."""

import io
import os
from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.byte_ranges import Values, open_regular, read_box
from stage.errors import InputError


class CountedFile(io.BytesIO):
    """Notes how many bytes each read is asked for."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.lengths: list[int] = []

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # of the one kind that is read into
        self.lengths.append(len(buffer))
        return super().readinto(buffer)


def _values(shape: tuple[int, ...]) -> Values:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_box_at_an_offset_of_a_file() -> None:
    values = _values((3, 4, 256))
    file = io.BytesIO(b"header" + values.tobytes() + b"more")
    box = (slice(1, 3), slice(1, 2), slice(3, 200))
    np.testing.assert_array_equal(read_box(file, 6, (3, 4, 256), values.dtype, box), values[box])
    into = np.zeros((2, 2, 197), np.float32)
    read_box(file, 6, (3, 4, 256), values.dtype, box, into[:, 1:])
    np.testing.assert_array_equal(into[:, 1:], values[box])
    assert not into[:, 0].any()
    with pytest.raises(ValueError, match="the file ends before byte"):
        read_box(file, 20, (3, 4, 256), values.dtype, whole_box(values.shape))


def test_rows_behind_each_other_are_one_read() -> None:
    values = _values((4, 8, 256))
    for box, expected in (
        (whole_box(values.shape), [values.nbytes]),
        ((slice(1, 3), slice(2, 5), slice(0, 256)), [3 * 1024] * 2),
        ((slice(0, 1), slice(0, 2), slice(0, 128)), [512] * 2),
        ((slice(0, 1), slice(0, 2), slice(0, 4)), [2 * 1024]),  # runs shorter than a disk's sector
    ):
        file = CountedFile(values.tobytes())
        np.testing.assert_array_equal(read_box(file, 0, values.shape, values.dtype, box), values[box])
        assert file.lengths == expected


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises((InputError, IsADirectoryError), match=name), open_regular(tmp_path / name):
            pass
    with pytest.raises(FileNotFoundError, match="nowhere"), open_regular(tmp_path / "nowhere"):
        pass
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OSError, match=r"Input/output error: '.*file'"), open_regular(tmp_path / "file"):
        raise OSError(5, "Input/output error")  # reading from an open file names none
