"""Plan a conversion: files, bytes, reads of the input, memory, and time on one machine or several."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from checkpoint_convert.conversion.blocks import ONCE, bytes_to_read_once, choose_blocks, limit_text
from checkpoint_convert.conversion.paxml_to_megatron import PaxmlCheckpoint, paxml_axes
from checkpoint_convert.formats.array_table import ARRAYS, Array, X, array_dtype, groups
from foundation.plain_text import counted, folded, table_text
from foundation.sizes import size_text

BENCHMARK_SIZES = {"L": 96, "C": 3, "N": 96, "D": 128, "H": 12288, "F": 49152, "V": 51200, "P": 16384}
MESH = {"H": 64, "F": 24, "N": 24, "V": 24}
"""Assumed parts along each axis of a matrix: the checkpoint was trained on a mesh of 1 x 64 x 24 devices
(docs/facts/reference.md i)."""
WORKER_BYTES_PER_S = 0.25e9
"""Assumed speed of one worker, reading and writing; tests/speed/convert.py measures it on a machine."""


@dataclass(frozen=True)
class ArrayPlan:
    """The plan of one input array."""

    paxml: str
    output_files: int
    input_bytes: int
    """Bytes of the values as numbers; compressed chunks are smaller."""
    output_bytes: int
    blocks: int
    passes: float
    """Average number of times that an input byte is read."""
    block_bytes: int


@dataclass(frozen=True)
class PlannedTime:
    """The planned duration of a conversion."""

    source: str
    """Place of the input: disk or bucket."""
    nodes: int
    minutes: float
    limited_by: str
    """Limit of the speed: disk, network or workers."""


@dataclass(frozen=True)
class ConversionPlan:
    """The plan of the whole conversion."""

    files: int
    """Number of output files, including the two small ones."""
    bytes_written: int
    bytes_read: float
    passes: float
    """Average number of times that the input is read."""
    at_once: int
    """Number of blocks in memory at the same time."""
    peak_bytes: int
    """Bytes of all blocks in memory, including chunks that are being decoded."""
    bytes_to_read_once: int
    """Memory in which one block at a time reads no byte twice."""
    disk_mb_per_s: float
    network_mb_per_s: float
    arrays: Sequence[ArrayPlan]
    times: Sequence[PlannedTime]


def plan_paxml_to_megatron(
    source: PaxmlCheckpoint | None,
    *,
    dtype: str,
    workers: int,
    memory_limit: int,
    disk_mb_per_s: float,
    network_mb_per_s: float,
    nodes: Sequence[int] = (1,),
) -> ConversionPlan:
    """Return the plan for ``source``, or for the benchmark's own checkpoint if it is None.

    The speeds are those of each machine: of its disk, reading and writing together, and of data that arrive from a
    bucket; several machines do not slow each other down. ``nodes``: numbers of machines to give times for. Raises
    InputError for a memory limit that is too small.
    """
    sizes = BENCHMARK_SIZES if source is None else source.sizes
    rows = [(group, array) for group in groups(dtype) for array in ARRAYS]
    chunks = [
        _mesh_chunks(array, sizes) if source is None else source.array(group, array).chunks for group, array in rows
    ]
    axes = [paxml_axes(array, sizes, chunk) for (_, array), chunk in zip(rows, chunks, strict=True)]
    choice = choose_blocks(memory_limit, workers, axes)
    arrays = []
    for (group, array), cut in zip(rows, choice.cuts, strict=True):
        itemsizes = [np.dtype(array_dtype(prefix, dtype)).itemsize for prefix in group.megatron]
        target = cut.array.target
        files = math.prod(size // chunk for size, chunk in zip(cut.array.shape_of(target), target.chunks, strict=True))
        arrays.append(
            ArrayPlan(
                group.paxml_name(array, sizes["L"]),
                output_files=len(itemsizes) * (files + 1),
                input_bytes=4 * cut.array.items,
                output_bytes=cut.array.items * sum(itemsizes),
                blocks=cut.count,
                passes=cut.passes,
                block_bytes=4 * math.prod(cut.block),
            )
        )
    output_bytes, input_bytes = (
        sum(array.output_bytes for array in arrays),
        sum(array.input_bytes * array.passes for array in arrays),
    )
    # From disk, all bytes go through the disk; from a bucket, only the written bytes do, while the input arrives by
    # network. Requests and unpacking are not counted, and the join moves no bytes.
    at_work, on_disk = (input_bytes + output_bytes) / (choice.at_once * WORKER_BYTES_PER_S), disk_mb_per_s * 1e6
    seconds = {
        "disk": {"workers": at_work, "disk": (input_bytes + output_bytes) / on_disk},
        "bucket": {
            "workers": at_work,
            "disk": output_bytes / on_disk,
            "network": input_bytes / (network_mb_per_s * 1e6),
        },
    }
    times = [
        PlannedTime(resource, count, max(limits.values()) / 60 / count, max(limits, key=lambda name: limits[name]))
        for count in nodes
        for resource, limits in seconds.items()
    ]
    return ConversionPlan(
        files=sum(array.output_files for array in arrays) + 2,
        bytes_written=output_bytes,
        bytes_read=input_bytes,
        passes=choice.passes,
        at_once=choice.at_once,
        peak_bytes=choice.memory_bytes,
        bytes_to_read_once=bytes_to_read_once(axes),
        disk_mb_per_s=disk_mb_per_s,
        network_mb_per_s=network_mb_per_s,
        arrays=arrays,
        times=times,
    )


def _mesh_chunks(array: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    axes = array.paxml_axes.split()
    is_matrix = len([axis for axis in axes if axis != "L"]) > 1
    return tuple(sizes[axis] // (MESH.get(axis, 1) if is_matrix else 1) for axis in axes)


def format_plan(plan: ConversionPlan) -> str:
    """Return a line for each array, below the first part of its name; then the totals, and a line for each time."""
    head = ("files", "output", "blocks", "of", "reads", "array")
    rows: list[list[str]] = []
    captions: dict[int, str] = {}
    for array in plan.arrays:
        name = array.paxml.rpartition("params.lm.")[2].removeprefix(X)
        prefix = array.paxml.removesuffix(name)
        if not rows or prefix != list(captions.values())[-1]:
            captions[len(rows)] = prefix
        counts = [
            f"{array.output_files:,}",
            size_text(array.output_bytes),
            f"{array.blocks:,}",
            size_text(array.block_bytes),
        ]
        rows.append([*counts, f"{array.passes:.2f}", name])
    mend = f"; --memory-limit {limit_text(plan.bytes_to_read_once)} reads it once" if plan.passes > ONCE else ""
    lines = [
        table_text(head, rows, right=range(5), captions=captions),
        folded(
            f"{plan.files:,} files, {size_text(plan.bytes_written)} to write, {size_text(plan.bytes_read)} to read "
            f"(input read {plan.passes:.2f} times), {counted(plan.at_once, 'block')} at once, "
            f"{size_text(plan.peak_bytes)} of memory for them{mend}"
        ),
        folded(
            f"with {plan.disk_mb_per_s:,.0f} MB/s of disk and {plan.network_mb_per_s:,.0f} MB/s of network for each "
            f"machine, and {WORKER_BYTES_PER_S / 1e6:,.0f} MB/s of each worker:"
        ),
    ]
    for time in plan.times:
        line = f"  from {time.source:<6}  {counted(time.nodes, 'machine'):<11} {time.minutes:>8,.1f} minutes, "
        lines.append(folded(f"{line}limited by {time.limited_by}"))
    return "\n".join(lines)
