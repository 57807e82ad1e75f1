"""Converting arrays block by block: read, check, reorder, round, write every output chunk with its MD5.

Output chunks are uncompressed, so that a chunk's file is its bytes. Each file that is written is noted in the journal,
and is not written again.
"""

import hashlib
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoint_convert.conversion.block_choice import BlockChoice
from checkpoint_convert.conversion.block_sources import BlockSource
from checkpoint_convert.conversion.blocks import Cut
from checkpoint_convert.conversion.resuming.journal import Journal, WrittenFile
from checkpoint_convert.conversion.resuming.source_files import state_of
from checkpoint_convert.conversion.workspace import FileWriter, Workspace
from checkpoint_convert.formats.boxes import Box, items_in, relative, shape_of
from checkpoint_convert.formats.zarr_arrays import TENSORSTORE_FAILS
from stage.allocator import give_freed_memory_back
from stage.errors import InputError, first_line
from stage.progress import Meter, progress
from stage.task_shard import TaskShard

TILE = 64
"""Items along each side of a tile of a transpose."""


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
    blocks: BlockChoice
    targets: tuple[Target, ...]
    non_negative: bool
    """Second moments."""

    @property
    def cut(self) -> Cut:
        return self.blocks.cut

    @property
    def bytes(self) -> int:
        """Of all outputs."""
        items = math.prod(self.cut.sizes[axis] for axis in self.cut.target.axes)
        return items * sum(target.dtype.itemsize for target in self.targets)


@dataclass(frozen=True)
class _Task:
    """One block of a job."""

    job: Job
    block: Box

    @property
    def bytes(self) -> int:
        """Of its outputs."""
        return items_in(self.block) * sum(target.dtype.itemsize for target in self.job.targets)

    def names(self, unit: Box) -> list[str]:
        """The files of one of its units, in all output arrays."""
        cut, targets = self.job.cut, self.job.targets
        return [f"{target.name}/{key}" for key, _ in cut.files(unit) for target in targets]


def run_jobs(jobs: Sequence[Job], folder: Path, journal: Journal, *, shard: TaskShard | None = None) -> list[str]:
    """Write all output chunks into ``folder``, or those of ``shard``; those in the journal excepted. Returns the names
    of all of them.

    Raises InputError for an input chunk that cannot be read or holds a value that cannot be.
    """
    give_freed_memory_back()
    tasks = list(_share(jobs, shard))
    names = [name for task in tasks for unit in task.job.cut.units(task.block) for name in task.names(unit)]
    arena = Workspace(max(job.blocks.at_once * job.blocks.workspace_bytes for job in jobs))
    digests: dict[str, str] = {}

    def note(name: str, state: os.stat_result) -> None:
        journal.note(name, WrittenFile(digests.pop(name), state_of(state)))

    with (
        progress("convert", sum(task.bytes for task in tasks), "bytes", files=len(names)) as meter,
        FileWriter(folder, note) as writer,
    ):
        output = _Output(journal, writer, digests, meter)
        for (count, size), some in itertools.groupby(sorted(tasks, key=_memory), key=_memory):
            _run(list(some), arena, count, size, output)
    return names


@dataclass(frozen=True)
class _Output:
    """Where files go."""

    journal: Journal
    writer: FileWriter
    digests: dict[str, str]
    """MD5 of files that are not yet on the disk."""
    meter: Meter


def _share(jobs: Sequence[Job], shard: TaskShard | None) -> Iterator[_Task]:
    """All blocks, or those that lie in a shard's share of the bytes."""
    total, before = sum(job.bytes for job in jobs), 0
    for job in jobs:
        for block in job.cut.blocks():
            task = _Task(job, block)
            if shard is None or (2 * before + task.bytes) * shard.count // (2 * total) == shard.index:
                yield task
            before += task.bytes


def _memory(task: _Task) -> tuple[int, int]:
    """How many blocks at once, and the memory of each: tasks of which both are the same share it."""
    return task.job.blocks.at_once, task.job.blocks.workspace_bytes


def _run(tasks: Sequence[_Task], arena: Workspace, count: int, size: int, output: _Output) -> None:
    free: SimpleQueue[int] = SimpleQueue()  # whoever finds no place waits
    for number in range(count):
        free.put(number * size)
    with ThreadPoolExecutor(count) as pool:
        running: set[Future[None]] = set()
        try:
            for task in tasks:
                running.add(pool.submit(_convert, task, arena, free, output))
                if len(running) > 2 * count:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in running:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _convert(task: _Task, arena: Workspace, free: "SimpleQueue[int]", output: _Output) -> None:
    """Convert one block."""
    job, block, meter = task.job, task.block, output.meter
    units, files = [], 0
    for unit in job.cut.units(block):
        names = task.names(unit)
        files += len(names)
        if not all(map(output.journal.has, names)):
            units.append(unit)
    if not units:
        meter.done_before(task.bytes, files)
        return
    place = free.get()
    try:
        for_values, for_ordered, for_rounded = arena.arrays(job.cut.peak_items, place)
        with meter.doing("reading"):
            values = _read(job, block, for_values)
        for unit in units:
            with meter.doing("computing"):
                ordered = _unit_of(job.cut, values, block, unit, for_ordered)
            _write_unit(job, unit, ordered, for_rounded, output)
    finally:
        free.put(place)
    meter(task.bytes, files)


def _read(job: Job, block: Box, memory: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A block in the input's order."""
    box = job.cut.merged(block, job.cut.source)
    values = memory[: items_in(block)].reshape(shape_of(box))
    try:
        job.source.read(box, values)
    except TENSORSTORE_FAILS as error:
        raise InputError(f"{job.source.path}: a chunk cannot be read ({first_line(error)})") from error
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
    output: _Output,
) -> None:
    for target in job.targets:
        rounded = _rounded(values, target.dtype, memory)
        for key, within in job.cut.files(unit):
            name = f"{target.name}/{key}"
            with output.meter.doing("computing"):
                data = np.ascontiguousarray(rounded[within]).reshape(-1).view(np.uint8)
                output.digests[name] = hashlib.md5(data.data, usedforsecurity=False).hexdigest()
            with output.meter.doing("writing"):
                output.writer.write(name, data)


def _rounded(values: npt.NDArray[np.float32], dtype: np.dtype[Any], memory: npt.NDArray[np.float32]) -> Any:
    if values.dtype == dtype:
        return values
    rounded = memory.view(dtype)[: values.size].reshape(values.shape)
    with np.errstate(over="ignore"):  # BF16 overflows to infinity, as the reference's does
        np.copyto(rounded, values, casting="unsafe")
    return rounded
