"""What a conversion will take: files, bytes, how often the input is read, memory, and time on one or more machines."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from checkpoint_convert.conversion.block_choice import (
    ONCE,
    WORKER_BYTES_PER_S,
    bytes_to_read_once,
    choose_blocks,
    limit_text,
)
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.paxml_to_megatron import array_path
from checkpoint_convert.formats.array_table import ARRAYS, Array, ArrayGroup, array_dtype, chunk_shape, groups
from checkpoint_convert.formats.zarr_arrays import open_array
from checkpoint_convert.model_sizes.axis_sizes import paxml_axis_sizes

BENCHMARK_SIZES = {"L": 96, "C": 3, "N": 96, "D": 128, "H": 12288, "F": 49152, "V": 51200, "P": 16384}
MESH = {"H": 64, "F": 24, "N": 24, "V": 24}
"""Parts along each axis of a matrix, assumed: the checkpoint was trained on a mesh of 1 x 64 x 24 devices
(docs/facts/reference.md i)."""


@dataclass(frozen=True)
class ArrayPlan:
    """One input array."""

    paxml: str
    output_files: int
    input_bytes: int
    """As numbers; compressed chunks are smaller."""
    output_bytes: int
    blocks: int
    at_once: int
    """Blocks in memory at the same time."""
    passes: float
    """How often an input byte is read."""
    block_bytes: int
    peak_bytes: int
    """Of all blocks at once, chunks that are being decoded included."""
    bytes_to_read_once: int
    """The memory in which one block at a time reads no byte twice."""


def plan_paxml_to_megatron(source: Path | None, *, dtype: str, workers: int, memory_limit: int) -> list[ArrayPlan]:
    """A plan for each array of ``source``, of which only the shapes are read; None: the benchmark's own.

    Raises InputError for a missing array, a wrong shape, or a memory limit that is too small.
    """
    sizes = BENCHMARK_SIZES if source is None else paxml_axis_sizes(source)
    return [
        _plan(group, array, sizes, _input_chunks(source, group, array, sizes), dtype, workers, memory_limit)
        for group in groups(dtype)
        for array in ARRAYS
    ]


def _input_chunks(source: Path | None, group: ArrayGroup, array: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    if source is not None:
        return tuple(open_array(array_path(source, group, array, sizes)).chunk_layout.read_chunk.shape)
    axes = array.paxml_axes.split()
    is_matrix = len([axis for axis in axes if axis != "L"]) > 1
    return tuple(sizes[axis] // (MESH.get(axis, 1) if is_matrix else 1) for axis in axes)


def _plan(
    group: ArrayGroup,
    array: Array,
    sizes: Mapping[str, int],
    input_chunks: tuple[int, ...],
    dtype: str,
    workers: int,
    memory_limit: int,
) -> ArrayPlan:
    kept = array.kept_sizes(sizes)
    shape = array.megatron_shape(sizes)
    chunks = chunk_shape(shape)
    itemsizes = [{"float32": 4, "bfloat16": 2}[array_dtype(prefix, dtype)] for prefix in group.megatron]
    sides = Side(array.paxml_groups(), input_chunks), Side(array.megatron_groups(), chunks)
    chosen = choose_blocks(memory_limit, workers, kept, *sides, sum(itemsizes))
    items = math.prod(shape)
    files = math.prod(size // chunk for size, chunk in zip(shape, chunks, strict=True))
    return ArrayPlan(
        group.paxml_prefix(array, sizes["L"]) + array.paxml,
        len(itemsizes) * (files + 1),
        4 * items,
        items * sum(itemsizes),
        sum(1 for _ in chosen.cut.blocks()),
        chosen.at_once,
        chosen.cut.passes,
        4 * chosen.cut.block_items,
        chosen.memory_bytes,
        bytes_to_read_once(kept, *sides),
    )


@dataclass(frozen=True)
class MachineRates:
    """What each machine does, in 10^6 bytes per second; several machines do not take it from each other."""

    disk: float
    """Reading and writing together."""
    network: float
    """What arrives from a bucket."""


@dataclass(frozen=True)
class PlannedTime:
    """How long a conversion takes."""

    source: str
    """disk or bucket."""
    nodes: int
    minutes: float
    limited_by: str
    """disk, network or workers."""


def planned_time(plans: Sequence[ArrayPlan], source: str, nodes: int, rates: MachineRates) -> PlannedTime:
    """Return the time of all arrays, one after the other, on so many machines that share the bytes evenly.

    From disk all bytes go through it; from a bucket only those that are written do, while the rest arrives. Requests
    and unpacking are not counted, and the join moves no bytes.
    """
    minutes, needed = 0.0, Counter[str]()
    for plan in plans:
        read, written = plan.input_bytes * plan.passes, plan.output_bytes
        takes = {"workers": (read + written) / (plan.at_once * WORKER_BYTES_PER_S)}
        if source == "disk":
            takes["disk"] = (read + written) / (rates.disk * 1e6)
        else:
            takes.update(disk=written / (rates.disk * 1e6), network=read / (rates.network * 1e6))
        minutes += max(takes.values()) / 60 / nodes
        needed.update(takes)  # it adds fractions, too
    return PlannedTime(source, nodes, minutes, max(needed, key=lambda name: needed[name]))


@dataclass(frozen=True)
class PlanTotals:
    """All arrays together."""

    files: int
    """Of the output, the two small ones included."""
    bytes_written: int
    bytes_read: float
    passes: float
    """How often the input is read."""
    peak_bytes: int
    """Memory of all blocks at once."""
    bytes_to_read_once: int
    disk_mb_per_s: float
    minutes: float
    """On one machine, from its disk."""
    limited_by: str
    """disk or workers."""


def totals_of(plans: Sequence[ArrayPlan], rates: MachineRates) -> PlanTotals:
    read = sum(plan.input_bytes * plan.passes for plan in plans)
    time = planned_time(plans, "disk", 1, rates)
    return PlanTotals(
        files=sum(plan.output_files for plan in plans) + 2,
        bytes_written=sum(plan.output_bytes for plan in plans),
        bytes_read=read,
        passes=read / sum(plan.input_bytes for plan in plans),
        peak_bytes=max(plan.peak_bytes for plan in plans),
        bytes_to_read_once=max(plan.bytes_to_read_once for plan in plans),
        disk_mb_per_s=rates.disk,
        minutes=time.minutes,
        limited_by=time.limited_by,
    )


def plan_as_json(plans: Sequence[ArrayPlan], times: Sequence[PlannedTime], rates: MachineRates) -> dict[str, Any]:
    """Return the totals, ``arrays`` with a plan each, and ``times``."""
    return {
        **asdict(totals_of(plans, rates)),
        "arrays": [asdict(plan) for plan in plans],
        "times": [asdict(time) for time in times],
    }


def format_plan(plans: Sequence[ArrayPlan], times: Sequence[PlannedTime], rates: MachineRates) -> str:
    """Return a line for each array, one for the totals, and one for each of ``times``."""
    lines = [f"{'files':>7} {'output':>10} {'blocks':>7} {'of':>9} {'at once':>7} {'reads':>6} {'memory':>9}  array"]
    lines += [
        f"{plan.output_files:>7,} {_size(plan.output_bytes):>10} {plan.blocks:>7,} {_size(plan.block_bytes):>9} "
        f"{plan.at_once:>7} {plan.passes:>6.2f} {_size(plan.peak_bytes):>9}  {plan.paxml}"
        for plan in plans
    ]
    totals = totals_of(plans, rates)
    enough = limit_text(totals.bytes_to_read_once)
    mend = f"; --memory-limit {enough} reads it once" if any(plan.passes > ONCE for plan in plans) else ""
    lines.append(
        f"{totals.files:,} files, {_size(totals.bytes_written)} to write, {_size(totals.bytes_read)} to read (input "
        f"read {totals.passes:.2f} times), {_size(totals.peak_bytes)} of memory for blocks; {totals.minutes:,.0f} "
        f"minutes with {rates.disk:,.0f} MB/s of disk and {WORKER_BYTES_PER_S / 1e6:,.0f} MB/s of each worker, limited "
        f"by {totals.limited_by}{mend}"
    )
    if times:
        lines.append(f"with {rates.disk:,.0f} MB/s of disk and {rates.network:,.0f} MB/s of network for each machine:")
    for time in times:
        machines = "1 machine " if time.nodes == 1 else f"{time.nodes} machines"
        lines.append(
            f"  from {time.source:<6}  {machines:<14} {time.minutes:>8,.1f} minutes, limited by {time.limited_by}"
        )
    return "\n".join(lines)


def _size(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"
