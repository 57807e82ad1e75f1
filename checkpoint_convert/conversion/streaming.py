"""Converting arrays block by block: read, check, reorder, round, write every output chunk with its MD5.

Output chunks are uncompressed, so that a chunk's file is its bytes. Each file that is written is noted in the journal,
and is not written again.
"""

import errno
import hashlib
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoint_convert.conversion.block_sources import BlockSource
from checkpoint_convert.conversion.blocks import Cut, Side, cut
from checkpoint_convert.conversion.journal import Journal
from checkpoint_convert.conversion.workspace import Workspace, workspace_bytes, write_file
from checkpoint_convert.formats.boxes import Box, items_in, relative, shape_of
from stage.allocator import give_freed_memory_back
from stage.errors import InputError
from stage.progress import progress

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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

    source: BlockSource
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


def run_jobs(jobs: Sequence[Job], folder: Path, journal: Journal, *, workers: int, memory_limit: int) -> None:
    """Write all output chunks into ``folder``, those in the journal excepted.

    Raises InputError for an input chunk that cannot be read or holds a value that cannot be, and for a full disk.
    """
    give_freed_memory_back()
    size = max(workspace_bytes(job.cut.peak_items) for job in jobs)
    free: SimpleQueue[Workspace] = SimpleQueue()  # whoever finds none waits
    for _ in range(max(1, min(workers, memory_limit // size))):
        free.put(Workspace(size))
    with (
        progress("convert", sum(job.bytes for job in jobs), "bytes") as advance,
        ThreadPoolExecutor(workers) as pool,
    ):
        running: set[Future[int]] = set()
        try:
            for job in jobs:
                for block in job.cut.blocks():
                    running.add(pool.submit(_convert, job, block, folder, journal, free))
                    if len(running) > 2 * workers:
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        advance(sum(future.result() for future in done))
            for future in running:
                advance(future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _convert(job: Job, block: Box, folder: Path, journal: Journal, free: "SimpleQueue[Workspace]") -> int:
    """Convert one block; returns its output bytes."""
    units = [unit for unit in job.cut.units(block) if not _is_done(job, unit, journal)]
    size = items_in(block) * sum(target.dtype.itemsize for target in job.targets)
    if not units:
        return size
    workspace = free.get()
    try:
        for_values, for_ordered, for_rounded = workspace.arrays(job.cut.peak_items)
        values = _read(job, block, for_values)
        for unit in units:
            ordered = _unit_of(job.cut, values, block, unit, for_ordered)
            _write_unit(job, unit, ordered, for_rounded, folder, journal)
    finally:
        free.put(workspace)
    return size


def _is_done(job: Job, unit: Box, journal: Journal) -> bool:
    return all(journal.has(f"{target.name}/{key}") for key, _ in job.cut.files(unit) for target in job.targets)


def _read(job: Job, block: Box, memory: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A block in the input's order."""
    box = job.cut.merged(block, job.cut.source)
    values = memory[: items_in(block)].reshape(shape_of(box))
    try:
        job.source.read(box, values)
    except ValueError as error:
        raise InputError(f"{job.source.path}: a chunk cannot be read ({str(error).splitlines()[0]})") from error
    _require_possible(job, values, box)
    return values


def _require_possible(job: Job, values: npt.NDArray[np.float32], box: Box) -> None:
    """Raise InputError for NaN, infinity or a negative second moment, naming the chunk it is in."""
    with np.errstate(all="ignore"):
        if not np.isfinite(values.sum()) and not (finite := np.isfinite(values)).all():
            _complain(job, values, box, ~finite)
        if job.non_negative and values.min() < 0:
            _complain(job, values, box, values < 0)


def _complain(job: Job, values: npt.NDArray[np.float32], box: Box, bad: npt.NDArray[np.bool_]) -> None:
    first = np.unravel_index(int(bad.argmax()), bad.shape)
    index = [int(offset) + part.start for offset, part in zip(first, box, strict=True)]
    chunk = [position // size for position, size in zip(index, job.cut.source.chunks, strict=True)]
    what = "a negative second moment" if np.isfinite(values[first]) else "not a number that training leaves"
    raise InputError(f"{job.source.path}: {values[first]} at {index}, in chunk {chunk}: {what}; the source is damaged")


def _unit_of(
    cut: Cut, values: npt.NDArray[np.float32], block: Box, unit: Box, memory: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """One unit of a block, in the output's order, merged."""
    extents = dict(zip(cut.target.axes, shape_of(block), strict=True))
    by_axis = values.reshape([extents[axis] for axis in cut.source.axes])
    ordered = by_axis.transpose([cut.source.axes.index(axis) for axis in cut.target.axes])
    within = relative(unit, block)
    copy = memory[: items_in(unit)]
    _copy(ordered[within], copy.reshape(ordered[within].shape))
    return copy.reshape(shape_of(cut.merged(unit, cut.target)))


def _copy(values: npt.NDArray[np.float32], copy: npt.NDArray[np.float32]) -> None:
    """Copy into C order. A transpose goes by tiles, so that what is read with a stride stays in the cache."""
    if values.ndim < 2 or values.strides[-1] == values.itemsize:
        copy[...] = values
        return
    fast = min(range(values.ndim - 1), key=lambda axis: values.strides[axis] if values.shape[axis] > 1 else 1 << 62)
    for start in range(0, values.shape[-1], TILE):
        for other in range(0, values.shape[fast], TILE):
            tile: list[slice] = [slice(None)] * values.ndim
            tile[-1], tile[fast] = slice(start, start + TILE), slice(other, other + TILE)
            copy[tuple(tile)] = values[tuple(tile)]


def _write_unit(
    job: Job,
    unit: Box,
    values: npt.NDArray[np.float32],
    memory: npt.NDArray[np.float32],
    folder: Path,
    journal: Journal,
) -> None:
    for target in job.targets:
        rounded = _rounded(values, target.dtype, memory)
        for key, within in job.cut.files(unit):
            name = f"{target.name}/{key}"
            data = np.ascontiguousarray(rounded[within]).reshape(-1).view(np.uint8)
            digest = hashlib.md5(data.data, usedforsecurity=False).hexdigest()
            try:
                write_file(folder / name, data)
                journal.note(name, digest, len(data))
            except OSError as error:
                if error.errno not in FULL:
                    raise
                where = f"{folder / name}: {error.strerror}"
                raise InputError(f"{where}; make room and run the command again, it goes on from here") from error


def _rounded(values: npt.NDArray[np.float32], dtype: np.dtype[Any], memory: npt.NDArray[np.float32]) -> Any:
    if values.dtype == dtype:
        return values
    rounded = memory.view(dtype)[: values.size].reshape(values.shape)
    with np.errstate(over="ignore"):  # BF16 overflows to infinity, as the reference's does
        np.copyto(rounded, values, casting="unsafe")
    return rounded
