"""Parts of arrays: every value of a box lies in one chunk's part, and boxes out of files of plain bytes take no more
reads than rows that lie apart; only files are opened."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_convert.formats.boxes import (
    Box,
    ChunkPart,
    box_at,
    chunk_parts,
    divided,
    items_in,
    overlap,
    relative,
    shape_of,
    whole_box,
)
from checkpoint_convert.formats.stored_array import Values, copy_in_order, open_regular, read_box
from foundation.errors import InputError

SHAPES = st.lists(st.integers(1, 9), max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    ends = [sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in shape]
    return tuple(slice(start, stop) for start, stop in ends)


@settings(max_examples=100)
@given(SHAPES, st.data())
def test_a_box_is_put_together_of_its_chunks_and_of_its_pieces(shape: tuple[int, ...], data: st.DataObject) -> None:
    box = data.draw(boxes(shape))
    chunks = tuple(data.draw(st.integers(1, 10)) for _ in shape)
    values = np.arange(int(np.prod(shape))).reshape(shape)
    padded = np.full([-(-size // chunk) * chunk for size, chunk in zip(shape, chunks, strict=True)], -1)
    padded[whole_box(shape)] = values
    found = np.full(shape_of(box), -2)
    parts = list(chunk_parts(box, chunks))
    for part in parts:
        chunk = box_at([at * size for at, size in zip(part.numbers, chunks, strict=True)], chunks)
        found[part.in_box] = padded[chunk][part.in_chunk]
    np.testing.assert_array_equal(found, values[box])
    assert sum(items_in(part.in_box) for part in parts) == items_in(box)
    assert [part.numbers for part in parts] == sorted({part.numbers for part in parts})
    pieces, held = list(divided(box, chunks)), np.zeros(shape, int)
    for piece in pieces:
        assert all(size <= extent for size, extent in zip(shape_of(piece), chunks, strict=True))
        held[piece] += 1
    assert held[box].all()
    assert held.sum() == items_in(box)
    starts = [tuple(part.start for part in piece) for piece in pieces]
    assert starts == sorted(starts)


@settings(max_examples=100)
@given(SHAPES, st.data())
def test_overlap_is_what_both_hold(shape: tuple[int, ...], data: st.DataObject) -> None:
    one, other = data.draw(boxes(shape)), data.draw(boxes(shape))
    values, in_one = np.arange(int(np.prod(shape))).reshape(shape), np.zeros(shape, bool)
    in_one[one] = True
    common = overlap(one, other)
    assert in_one[other].sum() == (0 if common is None else items_in(common))
    if common is not None:
        np.testing.assert_array_equal(values[one][relative(common, one)], values[common])


def test_arrays_without_axes_or_values() -> None:
    assert list(chunk_parts((), ())) == [ChunkPart((), (), ())]
    assert list(divided((), ())) == [()]
    assert (shape_of(()), items_in(()), overlap((), ())) == ((), 1, ())
    assert list(divided(whole_box((10**15, 0)), (1, 1))) == []


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
