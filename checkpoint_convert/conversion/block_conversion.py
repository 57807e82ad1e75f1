"""Convert arrays block by block: read, check, reorder, round, write every output chunk with its MD5.

Output chunks are uncompressed, so that a chunk's file is its bytes. Each is a part of the resumable output; a chunk
that the output has noted is not written again.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoint_convert.conversion.blocks import (
    ONCE,
    ArrayAxes,
    BlockChoice,
    Cut,
    bytes_to_read_once,
    choose_blocks,
    limit_text,
)
from checkpoint_convert.conversion.workspace import Workspace, give_freed_memory_back, memory_problem, write_chunk
from checkpoint_convert.formats.boxes import Box, items_in, relative, shape_of
from checkpoint_convert.formats.source_files import SourceFiles
from checkpoint_convert.formats.stored_array import copy_in_order
from checkpoint_convert.formats.summed_output import FileTask
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, ZarrArray, metadata_text
from foundation.errors import InputError
from foundation.outputs.output_parts import NewPart
from foundation.outputs.resumable_output import ResumableOutput
from foundation.progress import Meter
from foundation.sizes import require_workers

BlockValues = npt.NDArray[np.float32]
FP32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Job:
    """One input array and the output arrays made of it."""

    source: ZarrArray
    shape: tuple[int, ...]
    """Shape that the input must have; of the position table, not all rows are converted."""
    axes: ArrayAxes
    targets: Mapping[str, np.dtype[Any]]
    """Dtype of each output array, by its folder's name."""
    non_negative: bool
    """True for second moments."""

    def names(self, unit: Box) -> list[str]:
        """Return the parts made of a box of whole output chunks, in all output arrays."""
        return [f"{name}/{key}" for key, _ in self.axes.files(unit) for name in self.targets]

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata of the output arrays, by the names of their files."""
        shape, chunks, dtypes = self.axes.shape_of(self.axes.target), self.axes.target.chunks, self.targets
        return {f"{name}/{METADATA_FILE}": metadata_text(shape, dtypes[name].name, chunks) for name in dtypes}


def require_arrays(files: SourceFiles, jobs: Sequence[Job], *, absent_are_zeros: bool, mend: str) -> int:
    """Look for all chunks that are read, and return how many have no file.

    Raises InputError for another shape or dtype. A chunk without a file raises InputError ending with ``mend``, unless
    ``absent_are_zeros`` is set and the array's fill value is zero or not given.
    """
    names: list[list[str]] = []
    for job in jobs:
        stored, axes = job.source, job.axes
        if (stored.shape, stored.dtype) != (job.shape, FP32):
            description = f"shape {list(stored.shape)} {stored.dtype.name}"
            raise InputError(f"{stored.where}: {description}, expected {list(job.shape)} float32 like the weights")
        names.append([f"{stored.name}/{key}" for key in stored.keys_within(axes.shape_of(axes.source))])
    files.ask([name for job_names in names for name in job_names])
    zeros = 0
    for job, job_names in zip(jobs, names, strict=True):
        stored, absent = job.source, [name for name in job_names if not files.has(name)]
        if absent and absent_are_zeros and repr(stored.metadata.get("fill_value")) not in ("None", "0", "0.0"):
            mend = "fetch it again (its fill_value says that it stands for something else than zeros)"
        elif absent_are_zeros:
            zeros += len(absent)
            continue
        if absent:
            raise InputError(f"{stored.where}: chunk {absent[0].removeprefix(f'{stored.name}/')} is missing; {mend}")
    return zeros


def block_tasks(jobs: Sequence[Job], workers: int, memory_limit: int) -> tuple[list[FileTask], int]:
    """Return the tasks that make the output chunks of ``jobs``, and the number of threads for them.

    ``workers`` and ``memory_limit`` bound the blocks that are converted at the same time, and their bytes. Warns if the
    input must be read more than once. Raises InputError for a memory that is too small.
    """
    require_workers(workers)
    arrays = [job.axes for job in jobs]
    choice = choose_blocks(memory_limit, workers, arrays)
    if choice.passes > ONCE:
        print(
            f"warning: within this --memory-limit the input is read {choice.passes:.1f} times; "
            f"{limit_text(bytes_to_read_once(arrays))} or more reads it once",
            file=sys.stderr,
        )
    if problem := memory_problem(choice.memory_bytes):
        raise InputError(problem)
    return [*_tasks(jobs, choice)], 2 * choice.at_once  # while some convert, the other threads wait for the disk


def _tasks(jobs: Sequence[Job], choice: BlockChoice) -> Iterator[FileTask]:
    give_freed_memory_back()
    workspace = Workspace(choice.block_bytes, choice.at_once)
    for job, cut in zip(jobs, choice.cuts, strict=True):
        for block in cut.blocks():
            size = items_in(block) * sum(dtype.itemsize for dtype in job.targets.values())
            yield FileTask(job.names(block), size, partial(_convert, job, cut, block, workspace))


def _convert(
    job: Job, cut: Cut, block: Box, workspace: Workspace, work: ResumableOutput, meter: Meter
) -> list[NewPart]:
    """Convert one block, except for the units that are there."""
    parts = []
    with workspace.arrays(cut.peak_items) as (for_values, for_ordered, for_rounded):
        with meter.doing("reading"):
            values = _read(job, block, for_values)
        for unit in cut.units(block):
            if not work.missing(job.names(unit)):
                continue
            with meter.doing("computing"):
                ordered = _unit_of(job.axes, values, block, unit, for_ordered)
            for target, dtype in job.targets.items():
                with meter.doing("computing"):
                    rounded = _rounded(ordered, dtype, for_rounded)
                for key, within in job.axes.files(unit):
                    with meter.doing("computing"):
                        data = np.ascontiguousarray(rounded[within]).reshape(-1).view(np.uint8)
                        md5 = hashlib.md5(data.data, usedforsecurity=False).hexdigest()
                    with meter.doing("writing"):
                        parts.append(NewPart(f"{target}/{key}", work.new_path(), md5))
                        _write(parts[-1], data, work)
    return parts


def _write(part: NewPart, data: npt.NDArray[np.uint8], work: ResumableOutput) -> None:
    try:
        write_chunk(part.path, data)
    except OSError as error:
        part.path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(work.path(part.name))) from error


def _read(job: Job, block: Box, memory: BlockValues) -> BlockValues:
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


def _complain(job: Job, values: BlockValues, box: Box, bad: npt.NDArray[np.bool_]) -> None:
    first = np.unravel_index(int(bad.argmax()), bad.shape)
    index = [int(offset) + part.start for offset, part in zip(first, box, strict=True)]
    chunk = [position // size for position, size in zip(index, job.source.chunks, strict=True)]
    defect = "a negative second moment" if np.isfinite(values[first]) else "not a number that training leaves"
    raise InputError(
        f"{job.source.where}: {values[first]} at {index}, in chunk {chunk}: {defect}; the source is damaged"
    )


def _unit_of(axes: ArrayAxes, values: BlockValues, block: Box, unit: Box, memory: BlockValues) -> BlockValues:
    """Return one unit of a block in the output's order, merged."""
    extents = dict(zip(axes.target.axes, shape_of(block), strict=True))
    by_axis = values.reshape([extents[axis] for axis in axes.source.axes])
    ordered = by_axis.transpose([axes.source.axes.index(axis) for axis in axes.target.axes])
    unit_values = ordered[relative(unit, block)]
    copy = memory[: items_in(unit)]
    copy_in_order(unit_values, copy.reshape(unit_values.shape))
    return copy.reshape(shape_of(axes.merged(unit, axes.target)))


def _rounded(values: BlockValues, dtype: np.dtype[Any], memory: BlockValues) -> Any:
    if values.dtype == dtype:
        return values
    rounded = memory.view(dtype)[: values.size].reshape(values.shape)
    with np.errstate(over="ignore"):  # BF16 overflows to infinity, as the reference's does
        np.copyto(rounded, values, casting="unsafe")
    return rounded
