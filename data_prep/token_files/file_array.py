"""An array in a file, whose parts are read on demand.

Parts are read by plain reads, not by a memory map. A page of a map that cannot be read (a file cut meanwhile, a bad
disk, a lost file server) kills the process by a signal; a failed read is an error with a name. Data that several
processes read are in the page cache once either way.
"""

import io
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError

BLOCK_ITEMS = 1 << 18
"""Items read at once when the whole array is read: 2 MiB of pointers."""


def read_at(file: io.FileIO, offset: int, data: memoryview, mend: str) -> None:
    """Fill ``data`` with the bytes from ``offset`` on.

    Raises InputError, which ends with ``mend``, if the file ends too early, and OSError, which names the file.
    """
    path, filled = Path(os.fsdecode(file.name)), 0
    while filled < len(data):
        try:
            got = os.preadv(file.fileno(), [data[filled:]], offset + filled)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        if not got:
            raise InputError(f"{path}: became shorter while it was read; {mend}")
        filled += got


class FileArray:
    """``shape`` items of ``dtype`` from byte ``offset`` of ``file`` on, row by row; they need not be aligned.

    ``array[i]`` and ``array[i:j]`` read one row or some of them, as a NumPy array would give them, but copied.
    ``numpy.asarray(array)`` reads all. Each raises the errors of :func:`read_at`.
    """

    def __init__(
        self, file: io.FileIO, dtype: npt.DTypeLike, offset: int, shape: tuple[int, ...], *, mend: str
    ) -> None:
        self.dtype, self.shape = np.dtype(dtype), shape
        self._file, self._offset, self._mend = file, offset, mend

    def __len__(self) -> int:
        return self.shape[0]

    @overload
    def __getitem__(self, rows: int) -> Any: ...

    @overload
    def __getitem__(self, rows: slice) -> npt.NDArray[Any]: ...

    def __getitem__(self, rows: int | slice) -> Any:
        if isinstance(rows, slice):
            first, stop, step = rows.indices(len(self))
            if step != 1:
                raise ValueError("rows are read one after the other, without a step")
            return self._rows(first, max(first, stop))
        row = rows + len(self) if rows < 0 else rows
        if not 0 <= row < len(self):
            raise IndexError(f"row {rows} of {len(self)}")
        return self._rows(row, row + 1)[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def blocks(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all rows, some at a time."""
        for start in range(0, len(self), BLOCK_ITEMS):
            yield self[start : start + BLOCK_ITEMS]

    def _rows(self, first: int, stop: int) -> npt.NDArray[Any]:
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        items = np.empty((stop - first, *self.shape[1:]), self.dtype)
        if items.size:
            read_at(self._file, self._offset + first * row_bytes, items.reshape(-1).view(np.uint8).data, self._mend)
        return items
