"""The memory in which blocks are converted: how much a process may take, and writing output chunks from it.

Chunks are written past the page cache, which takes a tenth less of the processors' time
(docs/notes/conversion_speed.md). For that the memory begins at a page, and is kept from one block to the next.
"""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import LifoQueue
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
NO_DIRECT = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""Errors by which file systems refuse to write past the page cache."""
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
SHARE = 0.9
"""Share of the memory for blocks. The rest is for Python, its packages and chunks that are being written."""


def workspace_bytes(counts: Sequence[int]) -> int:
    """Return the bytes of FP32 arrays with ``counts`` items, each in pages of its own."""
    return sum(-(-4 * count // PAGE) * PAGE for count in counts)


class Workspace:
    """The memory of the blocks that are converted at the same time, each in a part of its own."""

    def __init__(self, size: int, at_once: int) -> None:
        """``size``: bytes of the largest block's arrays."""
        self._parts: LifoQueue[mmap.mmap] = LifoQueue()  # the part that was used last has its pages already
        for _ in range(at_once):
            self._parts.put(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    @contextmanager
    def arrays(self, counts: Sequence[int]) -> Iterator[list[npt.NDArray[np.float32]]]:
        """Yield FP32 arrays of ``counts`` items, in pages of their own, with undefined contents.

        Waits until a part is free.
        """
        part = self._parts.get()
        starts = [workspace_bytes(counts[:number]) for number in range(len(counts))]
        try:
            yield [np.ndarray(count, np.float32, part, at) for count, at in zip(counts, starts, strict=True)]
        finally:
            self._parts.put(part)


def write_chunk(path: Path, data: npt.NDArray[np.uint8]) -> None:
    """Write a new file, past the page cache if size, place in memory and file system allow it."""
    direct = getattr(os, "O_DIRECT", 0)  # macOS has none
    if direct and len(data) % PAGE == 0 and data.ctypes.data % PAGE == 0:
        try:
            return _write_with(path, data.data, CREATE | direct)
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


def give_freed_memory_back() -> None:
    """Have glibc return every array of 1 MiB or more to the system when it is freed, and keep 4 MiB of smaller ones;
    elsewhere this does nothing.

    Otherwise its heaps would keep memory freed by several threads, a tenth of all memory that a conversion takes. The
    steps in which chunks are unpacked are smaller: returned each time, their pages would double the page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)
        mallopt(M_TRIM_THRESHOLD, 4 << 20)


def memory_problem(blocks: int) -> str | None:
    """Return an error text if ``blocks`` bytes are more than this process may take; None if they fit.

    The kernel would kill such a process without a message.
    """
    memory_bytes = memory_of_this_process()
    if blocks <= SHARE * memory_bytes:
        return None
    return (
        f"the blocks take {blocks:,} bytes, and this process may take {memory_bytes:,} in all; pass a smaller "
        f"--memory-limit, such as {int(memory_bytes * SHARE / 2) >> 20}MiB"
    )


def memory_of_this_process() -> int:
    """Return the bytes of the machine, or the lower limit of the process's control group or one above it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):  # another system, or a container that hides it
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":  # version 2
                root, name = CGROUPS, "memory.max"
            elif controllers == "memory":
                root, name = CGROUPS / "memory", "memory.limit_in_bytes"
            else:
                continue
            folder = root / path.lstrip("/")
            for group in (folder, *folder.parents[: len(folder.parts) - len(root.parts)]):
                with suppress(OSError, ValueError):  # "max"
                    limits.append(int((group / name).read_text()))
    return min(limits)
