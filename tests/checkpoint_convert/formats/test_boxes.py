"""Parts of arrays: every value of a box lies in one chunk's part, wherever the box and the chunks begin and end."""

import numpy as np
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

SHAPES = st.lists(st.integers(1, 9), max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    ends = [sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in shape]
    return tuple(slice(start, stop) for start, stop in ends)


@settings(max_examples=100)
@given(SHAPES, st.data())
def test_a_box_is_put_together_of_its_chunks(shape: tuple[int, ...], data: st.DataObject) -> None:
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


@settings(max_examples=100)
@given(SHAPES, st.data())
def test_divided_boxes_hold_every_value_once_in_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    box = data.draw(boxes(shape))
    extents = tuple(data.draw(st.integers(1, 10)) for _ in shape)
    pieces = list(divided(box, extents))
    held = np.zeros(shape, int)
    for piece in pieces:
        assert all(size <= extent for size, extent in zip(shape_of(piece), extents, strict=True))
        held[piece] += 1
    assert held[box].all()
    assert held.sum() == items_in(box)
    starts = [tuple(part.start for part in piece) for piece in pieces]
    assert starts == sorted(starts)


def test_arrays_without_axes_or_values() -> None:
    assert list(chunk_parts((), ())) == [ChunkPart((), (), ())]
    assert list(divided((), ())) == [()]
    assert (shape_of(()), items_in(()), overlap((), ())) == ((), 1, ())
    assert list(divided(whole_box((10**15, 0)), (1, 1))) == []
