"""Boxes, which are parts of an array: their places in one another, and their overlap with the chunks of a regular
grid."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Box = tuple[slice, ...]
"""A slice with a start and a stop for each axis, in bounds, step 1."""


class ChunkPart(NamedTuple):
    """The common part of a box and one chunk of a grid."""

    numbers: tuple[int, ...]
    """The chunk's number along each axis."""
    in_box: Box
    """The common part, counted from the box's first value."""
    in_chunk: Box
    """The common part, counted from the chunk's first value."""


def shape_of(box: Box) -> tuple[int, ...]:
    return tuple(part.stop - part.start for part in box)


def items_in(box: Box) -> int:
    return math.prod(shape_of(box))


def whole_box(shape: Sequence[int]) -> Box:
    return tuple(slice(0, size) for size in shape)


def box_at(offsets: Sequence[int], shape: Sequence[int]) -> Box:
    """Return the box of ``shape`` whose first value is at ``offsets``."""
    return tuple(slice(start, start + size) for start, size in zip(offsets, shape, strict=True))


def relative(box: Box, to: Box) -> Box:
    """Return the same place counted from the first value of ``to``: (4:6) within (3:9) is (1:3)."""
    return tuple(
        slice(part.start - origin.start, part.stop - origin.start) for part, origin in zip(box, to, strict=True)
    )


def overlap(first: Box, second: Box) -> Box | None:
    """Return the box of values that are in both boxes, or None if there are none."""
    common = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(first, second, strict=True))
    return None if any(part.start >= part.stop for part in common) else common


def chunk_parts(box: Box, chunks: Sequence[int]) -> Iterator[ChunkPart]:
    """Yield the chunks that a box touches, in C order.

    The box (3:10, 0:4) and chunks of 5 x 4 that begin at 0 have these parts in common:

        chunk 0,0 rows 3 and 4       in the box (0:2, 0:4), in the chunk (3:5, 0:4)
        chunk 1,0 rows 5 to 9        in the box (2:7, 0:4), in the chunk (0:5, 0:4)

    An empty box touches no chunk; a box without axes is the only chunk of such an array.
    """
    if not items_in(box):
        return
    ranges = [range(part.start // size, -(-part.stop // size)) for part, size in zip(box, chunks, strict=True)]
    for numbers in itertools.product(*ranges):
        chunk = box_at([number * size for number, size in zip(numbers, chunks, strict=True)], chunks)
        common = overlap(box, chunk) or ()
        yield ChunkPart(numbers, relative(common, box), relative(common, chunk))


def divided(box: Box, extents: Sequence[int]) -> Iterator[Box]:
    """Cut a box, in C order, into boxes of ``extents``; those at its ends may be smaller.

    A box without values yields none. The boxes are yielded one at a time: a damaged file's array may have more of them
    than fit in memory.
    """
    if not items_in(box):  # [10**15, 0] would be cut 10**15 times along its first axis
        return
    if not box:
        yield ()
        return
    for start in range(box[0].start, box[0].stop, extents[0]):
        first = slice(start, min(start + extents[0], box[0].stop))
        for inner_box in divided(box[1:], extents[1:]):
            yield (first, *inner_box)
