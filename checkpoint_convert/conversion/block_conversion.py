"""Convert arrays block by block: read, check, reorder, round, write every output chunk with its MD5.

Output chunks are uncompressed, so that a chunk's file is its bytes. Each is a piece of the resumable output; a chunk
that the output has noted is not written again.
"""

import ctypes
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoint_convert.conversion.blocks import ArrayAxes, BlockChoice, Cut
from checkpoint_convert.conversion.workspace import Workspace, write_chunk
from checkpoint_convert.formats.boxes import Box, items_in, relative, shape_of
from checkpoint_convert.formats.stored_array import copy_in_order
from checkpoint_convert.formats.zarr_arrays import ZarrArray
from stage.errors import InputError
from stage.outputs.resumable_output import NewPiece, ResumableOutput
from stage.progress import Meter, progress

Values = npt.NDArray[np.float32]

M_MMAP_THRESHOLD = -3


@dataclass(frozen=True)
class Job:
    """One input array and the output arrays made of it."""

    source: ZarrArray
    axes: ArrayAxes
    targets: Mapping[str, np.dtype[Any]]
    """Dtype of each output array, by its folder's name."""
    non_negative: bool
    """True for second moments."""

    def names(self, unit: Box) -> list[str]:
        """Return the pieces made of a box of whole output chunks, in all output arrays."""
        return [f"{name}/{key}" for key, _ in self.axes.files(unit) for name in self.targets]


@dataclass(frozen=True)
class BlockTask:
    """One block of a job."""

    job: Job
    cut: Cut
    block: Box

    @property
    def bytes(self) -> int:
        """Return the bytes of its outputs."""
        return items_in(self.block) * sum(dtype.itemsize for dtype in self.job.targets.values())

    @property
    def names(self) -> list[str]:
        """Return the pieces that it makes."""
        return self.job.names(self.block)


def tasks_of(jobs: Sequence[Job], choice: BlockChoice) -> list[BlockTask]:
    """Return all blocks of ``jobs``, in order."""
    return [BlockTask(job, cut, block) for job, cut in zip(jobs, choice.cuts, strict=True) for block in cut.blocks()]


def run_tasks(tasks: Sequence[BlockTask], choice: BlockChoice, work: ResumableOutput) -> None:
    """Write the output chunks of ``tasks`` as pieces of ``work``, except those that it already has.

    Raises InputError for an input chunk that cannot be read or holds an impossible value.
    """
    give_freed_memory_back()
    left, workspace = iter(tasks), Workspace(choice.workspace_bytes, choice.at_once)
    threads = 2 * choice.at_once  # while some convert, the others wait for the disk
    total, files = sum(task.bytes for task in tasks), sum(len(task.names) for task in tasks)

    def convert_all() -> None:
        for task in left:  # threads share it
            _convert(task, workspace, work, meter)

    with progress("convert", total, "bytes", files=files) as meter, ThreadPoolExecutor(threads) as pool:
        try:
            for done in as_completed([pool.submit(convert_all) for _ in range(threads)]):
                done.result()
        finally:
            deque(left, maxlen=0)  # after an error no thread begins another block


def give_freed_memory_back() -> None:
    """Have glibc return every large array to the system when it is freed; elsewhere this does nothing.

    Otherwise its heaps would keep memory freed by several threads, a tenth of all memory that a conversion takes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)


def _convert(task: BlockTask, workspace: Workspace, work: ResumableOutput, meter: Meter) -> None:
    """Convert one block."""
    job, names = task.job, task.names
    missing = set(work.missing(names))
    units = [unit for unit in task.cut.units(task.block) if not missing.isdisjoint(job.names(unit))]
    if not units:
        meter.done_before(task.bytes, len(names))
        return
    pieces = []
    with workspace.arrays(task.cut.peak_items) as (for_values, for_ordered, for_rounded):
        with meter.doing("reading"):
            values = _read(job, task.block, for_values)
        for unit in units:
            with meter.doing("computing"):
                ordered = _unit_of(job.axes, values, task.block, unit, for_ordered)
            for target, dtype in job.targets.items():
                with meter.doing("computing"):
                    rounded = _rounded(ordered, dtype, for_rounded)
                for key, within in job.axes.files(unit):
                    with meter.doing("computing"):
                        data = np.ascontiguousarray(rounded[within]).reshape(-1).view(np.uint8)
                        md5 = hashlib.md5(data.data, usedforsecurity=False).hexdigest()
                    with meter.doing("writing"):
                        pieces.append(NewPiece(f"{target}/{key}", work.new_path(), md5))
                        _write(pieces[-1], data, work)
    with meter.doing("writing"):
        work.add(pieces)
    meter(task.bytes, len(names))


def _write(piece: NewPiece, data: npt.NDArray[np.uint8], work: ResumableOutput) -> None:
    try:
        write_chunk(piece.path, data)
    except OSError as error:
        piece.path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(work.path(piece.name))) from error


def _read(job: Job, block: Box, memory: Values) -> Values:
    """Read a block, in the input's order. Raises InputError for NaN, infinity or a negative second moment, with the
    name of its chunk."""
    box = job.axes.merged(block, job.axes.source)
    values = job.source.read(box, memory[: items_in(block)].reshape(shape_of(box)))
    with np.errstate(all="ignore"):
        if not np.isfinite(values.sum()) and not (finite := np.isfinite(values)).all():
            _complain(job, values, box, ~finite)
        if job.non_negative and values.min() < 0:
            _complain(job, values, box, values < 0)
    return values


def _complain(job: Job, values: Values, box: Box, bad: npt.NDArray[np.bool_]) -> None:
    first = np.unravel_index(int(bad.argmax()), bad.shape)
    index = [int(offset) + part.start for offset, part in zip(first, box, strict=True)]
    chunk = [position // size for position, size in zip(index, job.source.chunks, strict=True)]
    what = "a negative second moment" if np.isfinite(values[first]) else "not a number that training leaves"
    raise InputError(f"{job.source.where}: {values[first]} at {index}, in chunk {chunk}: {what}; the source is damaged")


def _unit_of(axes: ArrayAxes, values: Values, block: Box, unit: Box, memory: Values) -> Values:
    """Return one unit of a block in the output's order, merged."""
    extents = dict(zip(axes.target.axes, shape_of(block), strict=True))
    by_axis = values.reshape([extents[axis] for axis in axes.source.axes])
    ordered = by_axis.transpose([axes.source.axes.index(axis) for axis in axes.target.axes])
    wanted = ordered[relative(unit, block)]
    copy = memory[: items_in(unit)]
    copy_in_order(wanted, copy.reshape(wanted.shape))
    return copy.reshape(shape_of(axes.merged(unit, axes.target)))


def _rounded(values: Values, dtype: np.dtype[Any], memory: Values) -> Any:
    if values.dtype == dtype:
        return values
    rounded = memory.view(dtype)[: values.size].reshape(values.shape)
    with np.errstate(over="ignore"):  # BF16 overflows to infinity, as the reference's does
        np.copyto(rounded, values, casting="unsafe")
    return rounded
