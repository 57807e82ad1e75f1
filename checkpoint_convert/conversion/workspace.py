"""Memory that blocks are converted in, and writing out of it.

Pages are the cost of moving terabytes: fresh ones, of arrays that are made anew for every block or of the page cache
for what is written, take more time than all that is computed. So memory is kept from one block to the next, and files
are written past the page cache.
"""

import errno
import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import numpy.typing as npt

from stage.publish import SYNCED_AT_ONCE, own_partial_path, sync_handle

PAGE = mmap.PAGESIZE
NO_DIRECT = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""How file systems refuse to write past the page cache."""
CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Workspace:
    """Memory for arrays that begin at pages of their own."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_HUGEPAGE)

    def arrays(self, counts: Sequence[int], place: int = 0) -> list[npt.NDArray[np.float32]]:
        """FP32 arrays of so many items each, from byte ``place`` on; their content is what was there before."""
        starts = [place + workspace_bytes(counts[:number]) for number in range(len(counts))]
        return [np.ndarray(count, np.float32, self._memory, start) for count, start in zip(counts, starts, strict=True)]


def workspace_bytes(counts: Sequence[int]) -> int:
    """What FP32 arrays of so many items take, each in pages of its own."""
    return sum(-(-4 * count // PAGE) * PAGE for count in counts)


class FileWriter:
    """Writes files past the page cache, where size, place in memory and file system allow it; brings them to the disk
    beside whoever writes the next, many at a time, for a file system commits them together.

    A file has its name only once it is whole and on the disk; then ``finished(NAME, state)`` is called, by any thread.
    To be used as a context, at whose end all are finished. OSError names the file; nothing is left of it.
    """

    def __init__(self, folder: Path, finished: Callable[[str, os.stat_result], None]) -> None:
        self._folder, self._finished = folder, finished
        self._pool = ThreadPoolExecutor(SYNCED_AT_ONCE, thread_name_prefix="sync")
        self._places = BoundedSemaphore(2 * SYNCED_AT_ONCE)
        self._failed: BaseException | None = None

    def write(self, name: str, data: npt.NDArray[np.uint8]) -> None:
        """Write ``data``, which may be overwritten then. Raises what went wrong with this file or an earlier one."""
        self._raise()
        path = self._folder / name
        own = own_partial_path(path)
        try:
            handle = _write(own, data)
        except OSError as error:
            _unlink(own)
            raise OSError(error.errno, error.strerror, str(path)) from error
        self._places.acquire()
        self._pool.submit(self._finish, handle, own, name).add_done_callback(self._done)

    def __enter__(self) -> "FileWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._pool.shutdown()
        if kind is None:
            self._raise()

    def _raise(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _finish(self, handle: int, own: Path, name: str) -> None:
        path = self._folder / name
        try:
            try:
                sync_handle(handle, path)
            finally:
                os.close(handle)
            os.replace(own, path)
            state = path.stat()
        except OSError as error:
            _unlink(own)
            raise OSError(error.errno, error.strerror, str(path)) from error
        self._finished(name, state)

    def _done(self, future: "Future[None]") -> None:
        self._places.release()
        self._failed = self._failed or future.exception()


def _write(path: Path, data: npt.NDArray[np.uint8]) -> int:
    """Write a new file; gives its handle."""
    whole_pages = len(data) % PAGE == 0 and data.ctypes.data % PAGE == 0
    try:
        return _write_with(path, data.data, CREATE | (os.O_DIRECT if whole_pages else 0))
    except OSError as error:
        if error.errno not in NO_DIRECT or not whole_pages:
            raise
        return _write_with(path, data.data, CREATE)


def _write_with(path: Path, data: Any, flags: int) -> int:
    handle = os.open(path, flags, 0o666)
    try:
        done = 0
        while done < len(data):
            done += os.write(handle, data[done:])
    except BaseException:
        os.close(handle)
        raise
    return handle


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
