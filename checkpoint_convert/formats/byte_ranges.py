"""Read a box out of an array that lies in a file as plain C-order bytes, without reading the rest of it."""

import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoint_convert.formats.boxes import Box, shape_of
from checkpoint_convert.formats.chunk_files import open_chunk
from stage.errors import InputError

Values = npt.NDArray[Any]
SHORTEST_READ = 512
"""Bytes. Shorter runs are read together with what lies between them: a disk has no smaller sector."""


def read_box(
    path: Path, start: int, shape: Sequence[int], dtype: np.dtype[Any], box: Box, *, alone: bool = False
) -> Values:
    """Read the values of ``box`` from the array of ``shape`` whose first byte is byte ``start`` of the file.

    Rows that lie one behind the other are one read. Raises InputError where there is no such file, where it ends too
    early, or where the array is to be ``alone`` in it and the file has another size.
    """
    wanted = shape_of(box)
    values = np.empty(wanted, dtype)
    if values.size == 0:
        return values
    axis = _cut_axis(shape, wanted, dtype.itemsize)
    inner = math.prod(shape[axis + 1 :])
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    run_shape = (wanted[axis], *shape[axis + 1 :]) if wanted else ()
    keep = (slice(None), *box[axis + 1 :]) if wanted else ()
    first = box[axis].start * inner if wanted else 0
    length = math.prod(run_shape) * dtype.itemsize
    handle = open_chunk(path)
    try:
        size, expected = os.fstat(handle).st_size, start + math.prod(shape) * dtype.itemsize
        if size < expected or (alone and size != expected):
            raise InputError(
                f"{path}: a chunk cannot be read ({size} bytes, expected {expected}); verify the checkpoint"
            )
        for outer in itertools.product(*(range(size) for size in wanted[:axis])):
            items = first + sum(
                (part.start + at) * stride for part, at, stride in zip(box, outer, strides, strict=False)
            )
            run = _read_exactly(handle, path, start + items * dtype.itemsize, length)
            values[outer] = np.frombuffer(run, dtype).reshape(run_shape)[keep]
    finally:
        os.close(handle)
    return values


def _cut_axis(shape: Sequence[int], wanted: Sequence[int], itemsize: int) -> int:
    """Return the axis along which one read takes some rows; it takes all axes after it whole."""
    axis = len(shape) - 1
    while axis > 0 and wanted[axis] == shape[axis]:
        axis -= 1
    while axis > 0 and wanted[axis] * math.prod(shape[axis + 1 :]) * itemsize < SHORTEST_READ:
        axis -= 1
    return max(axis, 0)


def _read_exactly(handle: int, path: Path, offset: int, length: int) -> bytearray:
    """Read until all is there: Linux gives at most 2 GiB per call."""
    run = bytearray(length)
    view, done = memoryview(run), 0
    while done < length:
        got = os.preadv(handle, [view[done:]], offset + done)
        if got == 0:
            raise InputError(f"{path}: a chunk cannot be read (the file ends before byte {offset + length})")
        done += got
    return run
