"""Files that hold arrays: only regular ones are opened, and of plain C-order values only the wanted box is read."""

import itertools
import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from checkpoint_convert.formats.boxes import Box, shape_of
from stage.errors import InputError

Values = npt.NDArray[Any]
MEND = "the checkpoint is not whole: copy or fetch it again"
SHORTEST_READ = 512
"""Bytes. Shorter runs are read together with what lies between them: a disk has no smaller sector."""


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a file for unbuffered reading; opening never waits, as it would for a pipe.

    Raises FileNotFoundError or another OSError, which names the file even where reading failed; InputError for
    anything but a regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InputError(f"{path}: not a regular file; {MEND}")
            yield cast(BinaryIO, file)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_box(
    file: BinaryIO,
    start: int,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    box: Box,
    into: Values | None = None,
) -> Values:
    """Read the values of ``box`` from the array of ``shape`` whose first byte is byte ``start`` of the file.

    Rows that lie one behind the other are one read. The values go ``into`` an array of the box's shape (None: a new
    one). Raises ValueError where the file ends too early.
    """
    wanted = shape_of(box)
    values = np.empty(wanted, dtype) if into is None else into
    if values.size == 0:
        return values
    axis = _cut_axis(shape, wanted, dtype.itemsize)
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    run_shape = (wanted[axis], *shape[axis + 1 :]) if wanted else ()
    keep = (slice(None), *box[axis + 1 :]) if wanted else ()
    first = box[axis].start * strides[axis] if wanted else 0
    for outer in itertools.product(*(range(size) for size in wanted[:axis])):
        items = first + sum((part.start + at) * stride for part, at, stride in zip(box, outer, strides, strict=False))
        part = part_of(values, outer)
        if part.shape == run_shape and part.flags.c_contiguous:
            _read_exactly(file, start + items * dtype.itemsize, part)
        else:
            run = np.empty(run_shape, dtype)
            _read_exactly(file, start + items * dtype.itemsize, run)
            part[...] = run[keep]
    return values


def part_of(values: Values, place: Sequence[int | slice]) -> Values:
    """Return a part of an array as a view; indexing alone would give a number where no axis is left."""
    return values[(*place, Ellipsis)]


def _cut_axis(shape: Sequence[int], wanted: Sequence[int], itemsize: int) -> int:
    """Return the axis along which one read takes some rows; it takes all axes after it whole."""
    axis = len(shape) - 1
    while axis > 0 and wanted[axis] == shape[axis]:
        axis -= 1
    while axis > 0 and wanted[axis] * math.prod(shape[axis + 1 :]) * itemsize < SHORTEST_READ:
        axis -= 1
    return max(axis, 0)


def _read_exactly(file: BinaryIO, offset: int, values: Values) -> None:
    """Fill a contiguous array; Linux gives at most 2 GiB per call."""
    view = values.reshape(-1).view(np.uint8).data
    file.seek(offset)
    done = 0
    while done < len(view):
        if not (count := file.readinto(view[done:])):  # type: ignore[attr-defined]  # every binary file has it
            raise ValueError(f"the file ends before byte {offset + len(view)}")
        done += count
