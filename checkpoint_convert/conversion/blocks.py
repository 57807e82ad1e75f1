"""An array is cut into blocks that fit in memory and cover whole output files.

Both sides of a conversion hold the same axes (``array_table.py``), in another order, some of them merged: a *side* is
the groups of axes that make up an array's own axes, and the array's chunks. A *unit* is the smallest part that is made
of whole output chunks and can be merged; a *block* is units that are read at once. A block that covers whole input
chunks too reads nothing twice; where memory does not allow that, some chunks are read in several blocks.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checkpoint_convert.formats.boxes import Box, chunk_parts, divided, whole_box


@dataclass(frozen=True)
class Side:
    """One of the two arrays."""

    groups: tuple[tuple[str, ...], ...]
    """Axes that each of the array's own axes is merged from, the slowest first."""
    chunks: tuple[int, ...]
    """Along the array's own axes."""

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for group in self.groups for axis in group)


@dataclass(frozen=True)
class Cut:
    """The blocks of one array. Extents are along the target's axes, before merging."""

    sizes: Mapping[str, int]
    source: Side
    target: Side
    unit: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def block_items(self) -> int:
        return math.prod(self.block)

    @property
    def unit_items(self) -> int:
        return math.prod(self.unit)

    @property
    def peak_items(self) -> tuple[int, int, int]:
        """Return the FP32 items in memory for one block: its input, and for a unit the reordered copy and the largest
        of its outputs."""
        return self.block_items, self.unit_items, self.unit_items

    @property
    def peak_bytes(self) -> int:
        return 4 * sum(self.peak_items)

    @property
    def passes(self) -> float:
        """Return how often an input byte is read, on average."""
        return math.prod(
            _reads(size, extent, step)
            for size, extent, step in zip(
                self._shape, self.block, _steps(self.sizes, self.source, self.target.axes), strict=True
            )
        )

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[axis] for axis in self.target.axes)

    def blocks(self) -> Iterator[Box]:
        return divided(whole_box(self._shape), self.block)

    def units(self, block: Box) -> Iterator[Box]:
        """Yield the units of a block."""
        return divided(block, self.unit)

    def merged(self, box: Box, side: Side) -> Box:
        """Return a box along the target's unmerged axes as a box along the own, merged axes of one side."""
        by_axis = dict(zip(self.target.axes, box, strict=True))
        found = []
        for group in side.groups:
            inner = math.prod(self.sizes[axis] for axis in group[1:])
            found.append(slice(by_axis[group[0]].start * inner, by_axis[group[0]].stop * inner))
        return tuple(found)

    def files(self, box: Box) -> Iterator[tuple[str, Box]]:
        """Yield the output chunks within a box that is made of whole ones: key, and place in the box."""
        for chunk in chunk_parts(self.merged(box, self.target), self.target.chunks):
            yield ".".join(map(str, chunk.numbers)), chunk.in_box


def cut(sizes: Mapping[str, int], source: Side, target: Side, *, most_items: int, comfortable_items: int) -> Cut:
    """Cut an array into blocks of at most ``most_items``, if units allow it.

    They are grown to whole input chunks as far as they fit, and further up to ``comfortable_items``, so that small
    arrays are read at once.
    """
    axes = target.axes
    shape = tuple(sizes[axis] for axis in axes)
    unit = _steps(sizes, target, axes)
    for axis, inner in enumerate(_is_inner(source, axes)):
        if inner:
            unit[axis] = shape[axis]
    source_steps = _steps(sizes, source, axes)
    block = [min(math.lcm(step, other), size) for step, other, size in zip(unit, source_steps, shape, strict=True)]
    while math.prod(block) > most_items and block != unit:
        block = min(
            (_halved(block, unit, axis) for axis in range(len(axes)) if block[axis] > unit[axis]),
            key=lambda smaller: math.prod(map(_reads, shape, smaller, source_steps)),
        )
    for axis in reversed(range(len(axes))):
        while block[axis] < shape[axis] and 2 * math.prod(block) <= min(most_items, comfortable_items):
            block[axis] = min(2 * block[axis], shape[axis])
    return Cut(sizes, source, target, tuple(unit), tuple(block))


def _steps(sizes: Mapping[str, int], side: Side, axes: tuple[str, ...]) -> list[int]:
    """Return the smallest extent of each axis that ends where a chunk of this side ends, inner axes of a group being
    whole."""
    steps: dict[str, int] = {}
    for group, chunk in zip(side.groups, side.chunks, strict=True):
        inner = math.prod(sizes[axis] for axis in group[1:])
        steps[group[0]] = min(math.lcm(chunk, inner) // inner, sizes[group[0]])
        steps.update({axis: sizes[axis] for axis in group[1:]})
    return [steps[axis] for axis in axes]


def _is_inner(side: Side, axes: tuple[str, ...]) -> list[bool]:
    inner = {axis for group in side.groups for axis in group[1:]}
    return [axis in inner for axis in axes]


def _halved(block: list[int], unit: list[int], axis: int) -> list[int]:
    smaller = list(block)
    smaller[axis] = max(unit[axis], math.ceil(block[axis] / 2 / unit[axis]) * unit[axis])
    if smaller[axis] == block[axis]:
        smaller[axis] = unit[axis]
    return smaller


def _reads(size: int, extent: int, chunk: int) -> float:
    """Return how often an input chunk is read along one axis, on average."""
    touched = sum(-(-min(start + extent, size) // chunk) - start // chunk for start in range(0, size, extent))
    return touched / -(-size // chunk)
