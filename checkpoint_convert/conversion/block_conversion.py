"""Converting arrays block by block: read, check, reorder, round, write every output chunk with its MD5.

Output chunks are uncompressed, so that a chunk's file is its bytes. Each is a piece of the resumable output, and is not
written again once it is noted there.
"""

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoint_convert.conversion.block_choice import BlockChoice
from checkpoint_convert.conversion.block_sources import BlockSource
from checkpoint_convert.conversion.blocks import Cut
from checkpoint_convert.conversion.chunk_writer import ChunkWriter, Workspace, give_freed_memory_back, md5_of
from checkpoint_convert.formats.boxes import Box, items_in, relative, shape_of
from checkpoint_convert.formats.zarr_arrays import TENSORSTORE_FAILS
from stage.errors import InputError, first_line
from stage.outputs.resumable_output import ResumableOutput
from stage.progress import Meter, progress

FILES = "files"
"""Name of the folder, below the pieces, that becomes the output."""
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
        """Return the bytes of all outputs."""
        items = math.prod(self.cut.sizes[axis] for axis in self.cut.target.axes)
        return items * sum(target.dtype.itemsize for target in self.targets)


@dataclass(frozen=True)
class BlockTask:
    """One block of a job."""

    job: Job
    block: Box

    @property
    def bytes(self) -> int:
        """Return the bytes of its outputs."""
        return items_in(self.block) * sum(target.dtype.itemsize for target in self.job.targets)

    @property
    def names(self) -> list[str]:
        """Return the pieces that it makes."""
        return [name for unit in self.job.cut.units(self.block) for name in self.names_of(unit)]

    def names_of(self, unit: Box) -> list[str]:
        """Return the pieces made of one of its units, in all output arrays."""
        cut, targets = self.job.cut, self.job.targets
        return [piece_name(target, key) for key, _ in cut.files(unit) for target in targets]


def piece_name(target: Target, key: str) -> str:
    """Return the name of an output chunk as a piece."""
    return f"{FILES}/{target.name}/{key}"


def tasks_of(jobs: Sequence[Job]) -> list[BlockTask]:
    """Return all blocks of ``jobs``, in order."""
    return [BlockTask(job, block) for job in jobs for block in job.cut.blocks()]


def run_tasks(tasks: Sequence[BlockTask], work: ResumableOutput) -> None:
    """Write the output chunks of ``tasks`` as pieces of ``work``, those excepted that it has already.

    Raises InputError for an input chunk that cannot be read or holds a value that cannot be.
    """
    if not tasks:
        return
    give_freed_memory_back()
    arena = Workspace(max(task.job.blocks.at_once * task.job.blocks.workspace_bytes for task in tasks))
    files = sum(len(task.names) for task in tasks)
    with (
        progress("convert", sum(task.bytes for task in tasks), "bytes", files=files) as meter,
        ChunkWriter(work) as writer,
    ):
        output = _Output(work, writer, meter)
        for (count, size), some in itertools.groupby(sorted(tasks, key=_memory), key=_memory):
            _run(list(some), arena, count, size, output)


@dataclass(frozen=True)
class _Output:
    """The place where pieces go."""

    work: ResumableOutput
    writer: ChunkWriter
    meter: Meter


def _memory(task: BlockTask) -> tuple[int, int]:
    """Return how many blocks are converted at once, and the memory of each: tasks where both are the same share it."""
    return task.job.blocks.at_once, task.job.blocks.workspace_bytes


def _run(tasks: Sequence[BlockTask], arena: Workspace, count: int, size: int, output: _Output) -> None:
    free: SimpleQueue[int] = SimpleQueue()  # a thread that finds no place waits
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


def _convert(task: BlockTask, arena: Workspace, free: "SimpleQueue[int]", output: _Output) -> None:
    """Convert one block."""
    job, block, meter, names = task.job, task.block, output.meter, task.names
    missing = set(output.work.missing(names))
    units = [unit for unit in job.cut.units(block) if not missing.isdisjoint(task.names_of(unit))]
    if not units:
        meter.done_before(task.bytes, len(names))
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
    meter(task.bytes, len(names))


def _read(job: Job, block: Box, memory: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Read a block, in the input's order."""
    box = job.cut.merged(block, job.cut.source)
    values = memory[: items_in(block)].reshape(shape_of(box))
    try:
        job.source.read(box, values)
    except TENSORSTORE_FAILS as error:
        raise InputError(f"{job.source.where}: a chunk cannot be read ({first_line(error)})") from error
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
    raise InputError(f"{job.source.where}: {values[first]} at {index}, in chunk {chunk}: {what}; the source is damaged")


def _unit_of(
    cut: Cut, values: npt.NDArray[np.float32], block: Box, unit: Box, memory: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return one unit of a block in the output's order, merged."""
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
    job: Job, unit: Box, values: npt.NDArray[np.float32], memory: npt.NDArray[np.float32], output: _Output
) -> None:
    for target in job.targets:
        with output.meter.doing("computing"):
            rounded = _rounded(values, target.dtype, memory)
        for key, within in job.cut.files(unit):
            with output.meter.doing("computing"):
                data = np.ascontiguousarray(rounded[within]).reshape(-1).view(np.uint8)
                md5 = md5_of(data.data)
            with output.meter.doing("writing"):
                output.writer.write(piece_name(target, key), data, md5)


def _rounded(values: npt.NDArray[np.float32], dtype: np.dtype[Any], memory: npt.NDArray[np.float32]) -> Any:
    if values.dtype == dtype:
        return values
    rounded = memory.view(dtype)[: values.size].reshape(values.shape)
    with np.errstate(over="ignore"):  # BF16 overflows to infinity, as the reference's does
        np.copyto(rounded, values, casting="unsafe")
    return rounded
