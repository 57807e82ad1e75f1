"""Memory that blocks are converted in, and writing output chunks out of it as pieces of the output.

Chunks are written past the page cache, which takes a tenth less of the processors' time
(docs/notes/conversion_speed.md). The memory begins at a page for that, and is kept from one block to the next.
"""

import ctypes
import errno
import hashlib
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from stage.outputs.resumable_output import NewPiece, ResumableOutput

M_MMAP_THRESHOLD = -3
PAGE = mmap.PAGESIZE
NO_DIRECT = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""Errors by which file systems refuse to write past the page cache."""
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
WAITING = 64
"""Chunks that are written and not yet noted."""
NOTED_AT_ONCE = 32
"""A file system brings many files to the disk in little more time than one."""
LONGEST_PAUSE_S = 0.5
"""Chunks are noted without waiting for more when none has come for so long."""


def new_workspace(size: int) -> mmap.mmap:
    """Return memory that begins at a page, for :func:`arrays_in`."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def arrays_in(workspace: mmap.mmap, counts: Sequence[int]) -> list[npt.NDArray[np.float32]]:
    """Return FP32 arrays of so many items each, in pages of their own, with whatever was there before."""
    starts = [workspace_bytes(counts[:number]) for number in range(len(counts))]
    return [np.ndarray(count, np.float32, workspace, start) for count, start in zip(counts, starts, strict=True)]


def give_freed_memory_back() -> None:
    """Have glibc return every large array to the system when it is freed; elsewhere this does nothing. Its heaps would
    keep what several threads have freed, a tenth of all memory that a conversion takes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)


def workspace_bytes(counts: Sequence[int]) -> int:
    """Return what FP32 arrays of so many items take, each in pages of its own."""
    return sum(-(-4 * count // PAGE) * PAGE for count in counts)


def md5_of(data: Any) -> str:
    """Return the hex MD5 of a contiguous buffer."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class ChunkWriter:
    """Writes chunks as pieces of ``work``. A thread of its own brings them to the disk, many at a time.

    It is a context, at whose end all pieces are noted.
    """

    def __init__(self, work: ResumableOutput) -> None:
        self._work = work
        self._written: Queue[NewPiece | None] = Queue(WAITING)
        self._failed: Exception | None = None
        self._thread = Thread(target=self._note_all, name="note pieces", daemon=True)

    def write(self, name: str, data: npt.NDArray[np.uint8], md5: str) -> None:
        """Write the piece ``name``, after which ``data`` may be overwritten. Raises what went wrong with this piece or
        an earlier one."""
        if self._failed is not None:
            raise self._failed
        path = self._work.new_path()
        try:
            _write(path, data)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(self._work.path(name))) from error
        self._written.put(NewPiece(name, path, md5))

    def __enter__(self) -> "ChunkWriter":
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._written.put(None)
        self._thread.join()
        if kind is None and self._failed is not None:
            raise self._failed

    def _note_all(self) -> None:
        """Note pieces until None comes; after a failure, only take them, so that nobody waits."""
        while True:
            batch = [self._written.get()]
            with suppress(Empty):
                while batch[-1] is not None and len(batch) < NOTED_AT_ONCE:
                    batch.append(self._written.get(timeout=LONGEST_PAUSE_S))
            pieces = [piece for piece in batch if piece is not None]
            if self._failed is None and pieces:
                try:
                    self._work.add(pieces)
                except Exception as error:  # it is raised where the work is done
                    self._failed = error
            if batch[-1] is None:
                return


def _write(path: Path, data: npt.NDArray[np.uint8]) -> None:
    """Write a new file, past the page cache where size, place in memory and file system allow it."""
    whole_pages = len(data) % PAGE == 0 and data.ctypes.data % PAGE == 0
    try:
        _write_with(path, data.data, CREATE | (os.O_DIRECT if whole_pages else 0))
    except OSError as error:
        if error.errno not in NO_DIRECT or not whole_pages:
            raise
        path.unlink(missing_ok=True)
        _write_with(path, data.data, CREATE)


def _write_with(path: Path, data: Any, flags: int) -> None:
    handle = os.open(path, flags, 0o666)
    try:
        done = 0
        while done < len(data):
            done += os.write(handle, data[done:])
    finally:
        os.close(handle)
