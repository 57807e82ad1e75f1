"""Arrays are cut into blocks that fit in memory and cover whole output files.

Both sides of a conversion have the same axes (``array_table.py``), in different orders and partly merged: a *side* is
the groups of axes that make up an array's own axes, and the array's chunks. A *unit* is the smallest part that is made
of whole output chunks and can be merged; a *block* is units that are read at once. A block that also covers whole input
chunks reads nothing twice; if memory does not allow that, some chunks are read for several blocks.

Many small blocks keep many workers busy, but read input chunks several times; few large ones read each chunk once. The
input is read more than once only if the memory leaves no choice.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from checkpoint_convert.conversion.workspace import PAGE, workspace_bytes
from checkpoint_convert.formats.array_table import axis_groups
from checkpoint_convert.formats.boxes import Box, chunk_parts, divided, shape_of, whole_box
from foundation.errors import InputError

ITEM = 4
"""Bytes of an FP32 value."""
COMFORTABLE_ITEMS = 1 << 22
"""Items beyond which a block is not enlarged without need: 16 MB."""
ONCE = 1.05
"""Reads per input byte that still count as reading the input once: one chunk in twenty may be read twice."""


@dataclass(frozen=True)
class Side:
    """One of the two arrays of a conversion."""

    layout: str
    """Layout in the table's notation: axes in parentheses are merged into one of the array's own."""
    chunks: tuple[int, ...]
    """Chunk sizes along the array's own axes."""

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Return the axes that each of the array's own axes is merged from, the slowest first."""
        return axis_groups(self.layout)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for group in self.groups for axis in group)


@dataclass(frozen=True)
class ArrayAxes:
    """One array of a conversion, in both layouts."""

    sizes: Mapping[str, int]
    source: Side
    target: Side

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes of the target's axes, before merging."""
        return tuple(self.sizes[axis] for axis in self.target.axes)

    @property
    def items(self) -> int:
        return math.prod(self.shape)

    @property
    def decoding_bytes(self) -> int:
        """Return the extra memory for reading a block: one chunk, packed and unpacked."""
        return 2 * ITEM * math.prod(self.source.chunks)

    def merged(self, box: Box, side: Side) -> Box:
        """Convert a box along the target's unmerged axes to a box along the own, merged axes of one side."""
        by_axis = dict(zip(self.target.axes, box, strict=True))
        slices = []
        for group in side.groups:
            inner = math.prod(self.sizes[axis] for axis in group[1:])
            slices.append(slice(by_axis[group[0]].start * inner, by_axis[group[0]].stop * inner))
        return tuple(slices)

    def shape_of(self, side: Side) -> tuple[int, ...]:
        """Return the shape of the values to convert, along the own axes of one side."""
        return shape_of(self.merged(whole_box(self.shape), side))

    def files(self, box: Box) -> Iterator[tuple[str, Box]]:
        """Yield key and place in the box for each output chunk within a box that is made of whole chunks."""
        for chunk in chunk_parts(self.merged(box, self.target), self.target.chunks):
            yield ".".join(map(str, chunk.numbers)), chunk.in_box


@dataclass(frozen=True)
class Cut:
    """The blocks of one array. Extents are along the target's axes, before merging."""

    array: ArrayAxes
    unit: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def peak_items(self) -> tuple[int, int, int]:
        """Return the FP32 items in memory for one block: its input, and for a unit the reordered copy and the largest
        of its outputs."""
        return math.prod(self.block), math.prod(self.unit), math.prod(self.unit)

    @property
    def memory_bytes(self) -> int:
        return workspace_bytes(self.peak_items) + self.array.decoding_bytes

    @property
    def passes(self) -> float:
        """Return how often an input byte is read, on average."""
        steps = _steps(self.array, self.array.source)
        return math.prod(map(_reads, self.array.shape, self.block, steps))

    @property
    def count(self) -> int:
        """Return the number of blocks."""
        return math.prod(-(-size // extent) for size, extent in zip(self.array.shape, self.block, strict=True))

    def blocks(self) -> Iterator[Box]:
        return divided(whole_box(self.array.shape), self.block)

    def units(self, block: Box) -> Iterator[Box]:
        """Yield the units of a block."""
        return divided(block, self.unit)


@dataclass(frozen=True)
class BlockChoice:
    """The division of all arrays of a conversion into blocks, and the number of blocks in memory at the same time."""

    cuts: tuple[Cut, ...]
    at_once: int

    @property
    def block_bytes(self) -> int:
        """Return the memory for the largest block."""
        return max(workspace_bytes(cut.peak_items) for cut in self.cuts)

    @property
    def memory_bytes(self) -> int:
        """Return the most memory that the blocks, and the chunks that are decoded for them, can take."""
        return self.at_once * max(cut.memory_bytes for cut in self.cuts)

    @property
    def passes(self) -> float:
        """Return how often the input is read."""
        read = sum(cut.array.items * cut.passes for cut in self.cuts)
        return read / sum(cut.array.items for cut in self.cuts)


def choose_blocks(memory_limit: int, workers: int, arrays: Sequence[ArrayAxes]) -> BlockChoice:
    """Return the choice that takes the least time within ``memory_limit`` bytes and at most ``workers`` workers.

    It has as many workers as possible among the choices that need not read the input twice. Raises InputError if not
    even one block of the smallest size fits.
    """
    least = max(cut_array(array, most_items=0).memory_bytes for array in arrays)
    if least > memory_limit:
        raise InputError(
            f"--memory-limit is too small: a block and the chunks that it is read from take {least:,} bytes; pass "
            f"{limit_text(least)} or more"
        )
    choices, at_once = [], min(workers, memory_limit // least)
    while at_once:
        choices.append(BlockChoice(tuple(_fitting(array, memory_limit // at_once) for array in arrays), at_once))
        at_once = min(at_once - 1, max(1, at_once * 4 // 5))
    return min(choices, key=lambda choice: (choice.passes > ONCE, (choice.passes + 1) / choice.at_once))


def bytes_to_read_once(arrays: Sequence[ArrayAxes]) -> int:
    """Return the least memory in which one block at a time reads no chunk twice."""
    return max(cut_array(array, most_items=1 << 62, comfortable_items=0).memory_bytes for array in arrays)


def limit_text(size: int) -> str:
    """Return a size as ``--memory-limit`` takes it."""
    return f"{-(-size >> 20)}MiB"


def _fitting(array: ArrayAxes, memory: int) -> Cut:
    smallest = cut_array(array, most_items=0)
    for_block = memory - array.decoding_bytes - workspace_bytes(smallest.peak_items[1:])
    return cut_array(array, most_items=for_block // PAGE * PAGE // ITEM)


def cut_array(array: ArrayAxes, *, most_items: int, comfortable_items: int = COMFORTABLE_ITEMS) -> Cut:
    """Cut an array into blocks of at most ``most_items``, if units allow it.

    The blocks are enlarged to whole input chunks as far as they fit, and further up to ``comfortable_items``, so that
    small arrays are read at once.
    """
    shape, axes = array.shape, array.target.axes
    inner = {axis for group in array.source.groups for axis in group[1:]}
    steps = zip(axes, shape, _steps(array, array.target), strict=True)
    unit = [size if axis in inner else step for axis, size, step in steps]
    source_steps = _steps(array, array.source)
    block = [
        min(math.lcm(step, source_step), size)
        for step, source_step, size in zip(unit, source_steps, shape, strict=True)
    ]
    while math.prod(block) > most_items and block != unit:
        block = min(
            (_halved(block, unit, axis) for axis in range(len(axes)) if block[axis] > unit[axis]),
            key=lambda smaller: math.prod(map(_reads, shape, smaller, source_steps)),
        )
    for axis in reversed(range(len(axes))):
        while block[axis] < shape[axis] and 2 * math.prod(block) <= min(most_items, comfortable_items):
            block[axis] = min(2 * block[axis], shape[axis])
    return Cut(array, tuple(unit), tuple(block))


def _steps(array: ArrayAxes, side: Side) -> list[int]:
    """Return the smallest extent of each of the target's axes that ends where a chunk of this side ends, inner axes of
    a group being whole."""
    steps: dict[str, int] = {}
    for group, chunk in zip(side.groups, side.chunks, strict=True):
        inner = math.prod(array.sizes[axis] for axis in group[1:])
        steps[group[0]] = min(math.lcm(chunk, inner) // inner, array.sizes[group[0]])
        steps.update({axis: array.sizes[axis] for axis in group[1:]})
    return [steps[axis] for axis in array.target.axes]


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
