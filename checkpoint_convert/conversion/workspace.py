"""The memory in which blocks are converted, and writing output chunks from it.

Chunks are written past the page cache, which takes a tenth less of the processors' time
(docs/notes/conversion_speed.md). For that the memory begins at a page, and is kept from one block to the next.
"""

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Lock
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
NO_DIRECT = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""Errors by which file systems refuse to write past the page cache."""
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def workspace_bytes(counts: Sequence[int]) -> int:
    """Return the bytes of FP32 arrays with ``counts`` items, each in pages of its own."""
    return sum(-(-4 * count // PAGE) * PAGE for count in counts)


class Workspace:
    """The memory shared by the blocks that are converted at the same time."""

    def __init__(self, size: int, at_once: int) -> None:
        self._at_once = at_once
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._taken: dict[int, int] = {}
        """Bytes of each taken place, by its first byte."""
        self._turn, self._changed = Lock(), Condition()

    @contextmanager
    def arrays(self, counts: Sequence[int]) -> Iterator[list[npt.NDArray[np.float32]]]:
        """Yield FP32 arrays of ``counts`` items, in pages of their own, with undefined contents.

        Waits until there is room; threads are served in the order of their calls.
        """
        size = workspace_bytes(counts)
        with self._turn, self._changed:
            while (place := self._room_for(size)) is None:
                self._changed.wait()
            self._taken[place] = size
        starts = [place + workspace_bytes(counts[:number]) for number in range(len(counts))]
        try:
            yield [np.ndarray(count, np.float32, self._memory, at) for count, at in zip(counts, starts, strict=True)]
        finally:
            with self._changed:
                del self._taken[place]
                self._changed.notify_all()

    def _room_for(self, size: int) -> int | None:
        if len(self._taken) == self._at_once:
            return None
        end = 0
        for place, taken in sorted(self._taken.items()):
            if size <= place - end:
                return end
            end = place + taken
        return end if size <= len(self._memory) - end else None


def write_chunk(path: Path, data: npt.NDArray[np.uint8]) -> None:
    """Write a new file, past the page cache if size, place in memory and file system allow it."""
    if len(data) % PAGE == 0 and data.ctypes.data % PAGE == 0:
        try:
            return _write_with(path, data.data, CREATE | os.O_DIRECT)
        except OSError as error:
            if error.errno not in NO_DIRECT:
                raise
            path.unlink(missing_ok=True)
    return _write_with(path, data.data, CREATE)


def _write_with(path: Path, data: Any, flags: int) -> None:
    handle = os.open(path, flags, 0o666)
    try:
        done = 0
        while done < len(data):
            done += os.write(handle, data[done:])
    finally:
        os.close(handle)
