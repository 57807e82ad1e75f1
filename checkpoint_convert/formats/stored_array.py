"""Arrays as they are stored in any format: shape, dtype, chunks, and reading a box of values.

If values lie in a file in C order, only the wanted box is read, by byte ranges. Only regular files are opened.
"""

import itertools
import math
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from checkpoint_convert.formats.boxes import Box, shape_of
from foundation.errors import InputError

Values = npt.NDArray[Any]
MEND = "the checkpoint is not whole: copy or fetch it again"
SHORTEST_READ = 512
"""Least bytes of a read. Shorter runs are read together with the bytes between them: a disk has no smaller sector."""
TILE = 64
"""Items along each side of a tile of a transpose."""


@dataclass(frozen=True)
class StoredArray(ABC):
    """One array of a checkpoint."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    """Shape of the chunks, which should be read whole."""

    @abstractmethod
    def read(self, box: Box) -> Values:
        """Read a box of values. Raises InputError if they cannot be read, for example because a chunk has no file."""

    @property
    def missing_chunks(self) -> int:
        """Number of chunks without a file."""
        return 0

    @property
    def in_part(self) -> bool:
        """True if a part of a chunk can be read without the rest of it."""
        return True

    @property
    def chunk_count(self) -> int:
        """Number of chunks that the array lies in; for a zarr array, of files."""
        return math.prod(-(-size // max(chunk, 1)) for size, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def bytes(self) -> int:
        """Bytes of the values, uncompressed."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class ViewedArray(StoredArray):
    """Stored arrays seen in another way."""

    stored: Sequence[StoredArray]
    view: Callable[[Box], Values]
    """Function that reads a box of the view."""

    def read(self, box: Box) -> Values:
        return self.view(box)

    @property
    def missing_chunks(self) -> int:
        return sum(array.missing_chunks for array in self.stored)

    @property
    def in_part(self) -> bool:
        return self.stored[0].in_part


def stacked(layers: Sequence[StoredArray]) -> StoredArray:
    """Return arrays of one shape and dtype as one array, along a new first axis."""
    first = layers[0]

    def read(box: Box) -> Values:
        values = np.empty(shape_of(box), first.dtype)
        for at, layer in enumerate(layers[box[0]]):
            values[at] = layer.read(box[1:])
        return values

    return ViewedArray((len(layers), *first.shape), first.dtype, (1, *first.chunks), layers, read)


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a file for unbuffered reading; opening never waits, as it would for a pipe.

    Raises FileNotFoundError or another OSError, which names the file even if reading failed; InputError for anything
    but a regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InputError(f"{path}: not a regular file; {MEND}")
            yield cast(BinaryIO, file)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_box(file: BinaryIO, start: int, shape: Sequence[int], box: Box, values: Values) -> None:
    """Fill ``values`` with ``box`` of the array of ``shape`` that begins at byte ``start`` of the file.

    Adjacent rows are one read. Raises ValueError if the file ends too early.
    """
    extents, itemsize = shape_of(box), values.dtype.itemsize
    if values.size == 0:
        return
    axis = _cut_axis(shape, extents, itemsize)
    strides = [math.prod(shape[axis_number + 1 :]) for axis_number in range(len(shape))]
    run_shape = (extents[axis], *shape[axis + 1 :]) if extents else ()
    inner_box = (slice(None), *box[axis + 1 :]) if extents else ()
    first = box[axis].start * strides[axis] if extents else 0
    for outer in itertools.product(*(range(size) for size in extents[:axis])):
        items = first + sum((part.start + at) * stride for part, at, stride in zip(box, outer, strides, strict=False))
        part = part_of(values, outer)
        if part.shape == run_shape and part.flags.c_contiguous:
            _read_exactly(file, start + items * itemsize, part)
        else:
            run = np.empty(run_shape, values.dtype)
            _read_exactly(file, start + items * itemsize, run)
            part[...] = run[inner_box]


def part_of(values: Values, index: Sequence[int | slice]) -> Values:
    """Return a part of an array as a view; plain indexing would return a number if no axis is left."""
    return values[(*index, Ellipsis)]


def _cut_axis(shape: Sequence[int], extents: Sequence[int], itemsize: int) -> int:
    """Return the axis along which one read takes some rows; all later axes are read whole."""
    axis = len(shape) - 1
    while axis > 0 and extents[axis] == shape[axis]:
        axis -= 1
    while axis > 0 and extents[axis] * math.prod(shape[axis + 1 :]) * itemsize < SHORTEST_READ:
        axis -= 1
    return max(axis, 0)


def _read_exactly(file: BinaryIO, offset: int, values: Values) -> None:
    """Fill a contiguous array from the file; Linux reads at most 2 GiB per call."""
    view = values.reshape(-1).view(np.uint8).data
    file.seek(offset)
    done = 0
    while done < len(view):
        if not (count := file.readinto(view[done:])):  # type: ignore[attr-defined]  # every binary file has it
            raise ValueError(f"the file ends before byte {offset + len(view)}")
        done += count


def copy_in_order(values: Values, copy: Values) -> None:
    """Copy into an array in C order. A transpose goes by tiles, so that strided reads stay in the cache."""
    if values.ndim < 2 or values.strides[-1] == values.itemsize:
        copy[...] = values
        return
    fast = min(range(values.ndim - 1), key=lambda axis: values.strides[axis] if values.shape[axis] > 1 else 1 << 62)
    for start in range(0, values.shape[-1], TILE):
        for column in range(0, values.shape[fast], TILE):
            tile: list[slice] = [slice(None)] * values.ndim
            tile[-1], tile[fast] = slice(start, start + TILE), slice(column, column + TILE)
            copy[tuple(tile)] = values[tuple(tile)]


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape for a person: 96x12288."""
    return "x".join(map(str, shape)) or "scalar"
