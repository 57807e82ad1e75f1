"""Converting arrays block by block: read, check, reorder, round, write every output chunk with its MD5.

Output chunks are uncompressed, so that a chunk's file is its bytes. Each file that is written is noted in the journal,
and is not written again.
"""

import contextlib
import ctypes
import errno
import hashlib
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoint_convert.blocks import Cut, Place, Side, cut
from checkpoint_convert.journal import Journal
from checkpoint_convert.sources import Source
from stage.errors import InputError
from stage.progress import progress

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
M_MMAP_THRESHOLD = -3
TILE = 64
"""Items along each side of a tile of a transpose."""
COMFORTABLE_ITEMS = 1 << 22
"""Blocks are not made larger than 16 MB without need."""


@dataclass(frozen=True)
class Target:
    """One output array."""

    name: str
    """Its folder."""
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Job:
    """One input array and the output arrays made of it."""

    source: Source
    cut: Cut
    targets: tuple[Target, ...]
    non_negative: bool
    """Second moments."""

    @property
    def bytes(self) -> int:
        """Of all outputs."""
        items = math.prod(self.cut.sizes[axis] for axis in self.cut.target.axes)
        return items * sum(target.dtype.itemsize for target in self.targets)


def blocks_within(memory_limit: int, workers: int, sizes: Mapping[str, int], source: Side, target: Side) -> Cut:
    """The largest blocks of which ``workers`` fit into ``memory_limit`` bytes, with what reading them takes.

    Where not even the smallest do, they are converted one at a time. Raises InputError when one is too large as well.
    """
    smallest = cut(sizes, source, target, most_items=0, comfortable_items=0)
    decoding = 2 * workers * 4 * math.prod(source.chunks)  # chunks of the file and as they were packed
    per_block = (memory_limit - decoding) // workers
    if 12 * smallest.unit_items > memory_limit - decoding:
        raise InputError(
            f"--memory-limit is too small: one block takes {12 * smallest.unit_items:,} bytes and reading its chunks "
            f"{decoding:,}; raise it or lower --workers"
        )
    most_items = (per_block - 8 * smallest.unit_items) // 4
    return cut(sizes, source, target, most_items=most_items, comfortable_items=COMFORTABLE_ITEMS)


class _Memory:
    """Blocks wait until there is room for them; one is always let in."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._used == 0 or self._used + size <= self._limit)
            self._used += size
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()


def run_jobs(jobs: Sequence[Job], folder: Path, journal: Journal, *, workers: int, memory_limit: int) -> None:
    """Write all output chunks into ``folder``, those in the journal excepted.

    Raises InputError for an input chunk that cannot be read or holds a value that cannot be, and for a full disk.
    """
    _give_freed_memory_back()
    memory = _Memory(memory_limit)
    with (
        progress("convert", sum(job.bytes for job in jobs), "bytes") as advance,
        ThreadPoolExecutor(workers) as pool,
    ):
        running: set[Future[int]] = set()
        try:
            for job in jobs:
                for block in job.cut.blocks():
                    running.add(pool.submit(_convert, job, block, folder, journal, memory))
                    if len(running) > 2 * workers:
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        advance(sum(future.result() for future in done))
            for future in running:
                advance(future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _give_freed_memory_back() -> None:
    """Have glibc return every large array to the system when it is freed: its heaps would keep what several threads
    have freed, up to half as much again as the blocks take."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)


def _convert(job: Job, block: Place, folder: Path, journal: Journal, memory: _Memory) -> int:
    """Convert one block; returns its output bytes."""
    units = [unit for unit in job.cut.units(block) if not _is_done(job, unit, journal)]
    items = int(math.prod(part.stop - part.start for part in block))
    size = items * sum(target.dtype.itemsize for target in job.targets)
    if not units:
        return size
    with memory.room_for(job.cut.peak_bytes):
        values = _read(job, block)
        for unit in units:
            _write_unit(job, unit, _unit_of(job.cut, values, block, unit), folder, journal)
    return size


def _is_done(job: Job, unit: Place, journal: Journal) -> bool:
    return all(journal.has(f"{target.name}/{key}") for key, _ in job.cut.files(unit) for target in job.targets)


def _read(job: Job, block: Place) -> npt.NDArray[np.float32]:
    """A block in the input's order."""
    place = job.cut.merged(block, job.cut.source)
    try:
        values = job.source.read(place)
    except ValueError as error:
        raise InputError(f"{job.source.path}: a chunk cannot be read ({str(error).splitlines()[0]})") from error
    _require_possible(job, values, place)
    return values


def _require_possible(job: Job, values: npt.NDArray[np.float32], place: Place) -> None:
    """Raise InputError for NaN, infinity or a negative second moment, naming the chunk it is in."""
    with np.errstate(all="ignore"):
        if not np.isfinite(values.sum()) and not (finite := np.isfinite(values)).all():
            _complain(job, values, place, ~finite)
        if job.non_negative and values.min() < 0:
            _complain(job, values, place, values < 0)


def _complain(job: Job, values: npt.NDArray[np.float32], place: Place, bad: npt.NDArray[np.bool_]) -> None:
    first = np.unravel_index(int(bad.argmax()), bad.shape)
    index = [int(offset) + part.start for offset, part in zip(first, place, strict=True)]
    chunk = [position // size for position, size in zip(index, job.cut.source.chunks, strict=True)]
    what = "a negative second moment" if np.isfinite(values[first]) else "not a number that training leaves"
    raise InputError(f"{job.source.path}: {values[first]} at {index}, in chunk {chunk}: {what}; the source is damaged")


def _unit_of(cut: Cut, values: npt.NDArray[np.float32], block: Place, unit: Place) -> npt.NDArray[np.float32]:
    """One unit of a block, in the output's order, merged."""
    extents = dict(zip(cut.target.axes, (part.stop - part.start for part in block), strict=True))
    by_axis = values.reshape([extents[axis] for axis in cut.source.axes])
    ordered = by_axis.transpose([cut.source.axes.index(axis) for axis in cut.target.axes])
    within = tuple(
        slice(part.start - whole.start, part.stop - whole.start) for part, whole in zip(unit, block, strict=True)
    )
    return _contiguous(ordered[within]).reshape([part.stop - part.start for part in cut.merged(unit, cut.target)])


def _contiguous(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A copy in C order. A transpose goes by tiles, so that what is read with a stride stays in the cache."""
    if values.ndim < 2 or values.strides[-1] == values.itemsize:
        return np.ascontiguousarray(values)
    copy = np.empty(values.shape, values.dtype)
    fast = min(range(values.ndim - 1), key=lambda axis: values.strides[axis] if values.shape[axis] > 1 else 1 << 62)
    for start in range(0, values.shape[-1], TILE):
        for other in range(0, values.shape[fast], TILE):
            tile: list[slice] = [slice(None)] * values.ndim
            tile[-1], tile[fast] = slice(start, start + TILE), slice(other, other + TILE)
            copy[tuple(tile)] = values[tuple(tile)]
    return copy


def _write_unit(job: Job, unit: Place, values: npt.NDArray[np.float32], folder: Path, journal: Journal) -> None:
    for target in job.targets:
        with np.errstate(over="ignore"):  # BF16 overflows to infinity, as the reference's does
            rounded = values.astype(target.dtype, copy=False)
        for key, within in job.cut.files(unit):
            name = f"{target.name}/{key}"
            data = np.ascontiguousarray(rounded[within]).reshape(-1).view(np.uint8)
            digest = hashlib.md5(data.data, usedforsecurity=False).hexdigest()
            try:
                (folder / name).write_bytes(data.data)
                journal.note(name, digest, len(data))
            except OSError as error:
                if error.errno not in FULL:
                    raise
                where = f"{folder / name}: {error.strerror}"
                raise InputError(f"{where}; make room and run the command again, it goes on from here") from error
