"""Memory that blocks are converted in, and writing out of it.

Pages are the cost of moving terabytes: fresh ones, of arrays that are made anew for every block or of the page cache
for what is written, take more time than all that is computed. So memory is kept from one block to the next, and files
are written past the page cache.
"""

import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Workspace:
    """Memory for arrays that begin at pages of their own."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_HUGEPAGE)

    def arrays(self, counts: Sequence[int]) -> list[npt.NDArray[np.float32]]:
        """FP32 arrays of so many items each; their content is what was there before."""
        starts = [workspace_bytes(counts[:number]) for number in range(len(counts))]
        return [np.ndarray(count, np.float32, self._memory, start) for count, start in zip(counts, starts, strict=True)]


def workspace_bytes(counts: Sequence[int]) -> int:
    """What FP32 arrays of so many items take, each in pages of its own."""
    return sum(-(-4 * count // PAGE) * PAGE for count in counts)


def write_file(path: Path, data: npt.NDArray[np.uint8]) -> None:
    """Write a file past the page cache, where its size, the data's place in memory and the file system allow it."""
    whole_pages = len(data) % PAGE == 0 and data.ctypes.data % PAGE == 0
    try:
        _write(path, data.data, CREATE | (os.O_DIRECT if whole_pages else 0))
    except OSError as error:
        if error.errno != errno.EINVAL or not whole_pages:
            raise
        _write(path, data.data, CREATE)


def _write(path: Path, data: Any, flags: int) -> None:
    handle = os.open(path, flags, 0o666)
    try:
        done = 0
        while done < len(data):
            done += os.write(handle, data[done:])
    finally:
        os.close(handle)
