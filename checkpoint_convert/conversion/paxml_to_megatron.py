"""Convert PAXML's checkpoint to the Megatron zarr layout, to the same bytes as the reference's converter.

Both layouts are in docs/facts/reference.md f. A checkpoint at an address is converted from there, without a local copy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from checkpoint_convert.conversion.block_conversion import Job, block_tasks, require_arrays
from checkpoint_convert.conversion.blocks import ArrayAxes, Side
from checkpoint_convert.formats.array_table import (
    ARRAYS,
    EXP_AVG_SQ,
    REPEATS,
    Array,
    ArrayGroup,
    array_dtype,
    chunk_shape,
    groups,
)
from checkpoint_convert.formats.axis_sizes import paxml_axis_sizes
from checkpoint_convert.formats.source_files import LocalFiles, SourceFiles
from checkpoint_convert.formats.step_files import BENCHMARK_STEP, common_files, counter_shapes, paxml_adam_step
from checkpoint_convert.formats.summed_output import Produced, Product, produce, small_files
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, ZarrArray, open_zarr
from checksums.common_file import COMMON, METADATA
from foundation.disk_answers import folder_is_there
from foundation.errors import InputError
from foundation.outputs.manifest import require_intact
from foundation.outputs.shards import Shard
from foundation.regular_files import folder_fault


@dataclass(frozen=True)
class PaxmlCheckpoint:
    """A PAXML checkpoint whose metadata and counters have been read."""

    files: SourceFiles
    arrays: Mapping[tuple[str, str], ZarrArray]
    """Arrays by the prefix of their group's stacked arrays, and their own name."""
    sizes: Mapping[str, int]
    """Size of each axis, including position rows that are not kept."""
    adam_step: int | None
    """Adam's step; None if the checkpoint has no counter of steps."""

    def array(self, group: ArrayGroup, array: Array) -> ZarrArray:
        return self.arrays[group.paxml_stacked, array.paxml]


def open_paxml(files: SourceFiles) -> PaxmlCheckpoint:
    """Open a checkpoint; only the values of its counters are read.

    Raises InputError if an array is missing, the shapes are not a model's, or the counters contradict each other.
    """
    if isinstance(files.folder, Path) and not folder_is_there(files.folder):
        raise InputError(f"{files.folder}: {folder_fault(files.folder)}")
    files.ask(_small_files(REPEATS))
    weights, *moments = groups("fp32")
    if not any(files.has(f"{weights.paxml_name(array)}/{METADATA_FILE}") for array in ARRAYS):
        raise InputError(f"{files.folder}: no PAXML checkpoint (no mdl_vars.params.lm.…/{METADATA_FILE} in it)")
    arrays = {(weights.paxml_stacked, array.paxml): open_zarr(files, weights.paxml_name(array)) for array in ARRAYS}
    shapes = {array: arrays[weights.paxml_stacked, array.paxml].shape for array in ARRAYS}
    sizes = paxml_axis_sizes(files.folder, shapes)
    layers = sizes["L"]
    files.ask(name for name in _small_files(layers) if name not in files.facts)
    for group in moments:
        for array in ARRAYS:
            names = [group.paxml_name(array, repeats) for repeats in (REPEATS, layers)]  # PAXML writes the true number
            stored_name = next((name for name in names if files.has(f"{name}/{METADATA_FILE}")), names[0])
            arrays[group.paxml_stacked, array.paxml] = open_zarr(files, stored_name)
    counters = {name: open_zarr(files, name) for name in counter_shapes(layers) if files.has(f"{name}/{METADATA_FILE}")}
    return PaxmlCheckpoint(files, arrays, sizes, paxml_adam_step(files.folder, counters))


def _small_files(layers: int) -> Iterator[str]:
    """Yield the names of the metadata of every array that a checkpoint may have, and of its counters' values."""
    for group in groups("fp32"):
        for array in ARRAYS:
            yield f"{group.paxml_name(array, layers)}/{METADATA_FILE}"
    for name in counter_shapes(layers):
        yield from (f"{name}/{METADATA_FILE}", f"{name}/0")


def paxml_axes(array: Array, sizes: Mapping[str, int], chunks: tuple[int, ...]) -> ArrayAxes:
    """Return both layouts of an array whose PAXML chunks are ``chunks``."""
    target = Side(array.megatron_axes, chunk_shape(array.megatron_shape(sizes)))
    return ArrayAxes(array.kept_sizes(sizes), Side(array.paxml_axes, chunks), target)


def paxml_job(checkpoint: PaxmlCheckpoint, group: ArrayGroup, array: Array, dtype: str) -> Job:
    """Return the job of one input array; chunks that had no file at the beginning are read as zeros."""
    source = replace(checkpoint.array(group, array), absent_are_zeros=True)
    targets = {prefix + array.megatron: np.dtype(array_dtype(prefix, dtype)) for prefix in group.megatron}
    axes = paxml_axes(array, checkpoint.sizes, source.chunks)
    shape = array.paxml_shape(checkpoint.sizes)
    return Job(source, shape, axes, targets, non_negative=group.megatron == (EXP_AVG_SQ,))


def paxml_to_megatron(
    source: Path | SourceFiles,
    output: Path,
    *,
    dtype: str,
    workers: int,
    memory_limit: int,
    missing_chunks_are_zeros: bool = False,
    md5_list: str | None = None,
    force: bool = False,
    shard: Shard | None = None,
) -> Produced | None:
    """Convert a checkpoint to ``output`` (``dtype`` fp32 or bf16); return None if it is already there.

    ``md5_list``: MD5 of the list of sums that its files must have; every shard and the join must have the same list.
    Raises InputError for a missing array or chunk, a wrong shape or dtype, a value that training cannot leave, or
    another output under the name, and in the cases of :func:`block_tasks` and :func:`produce`.
    """
    files = LocalFiles(source) if isinstance(source, Path) else source
    if isinstance(files.folder, Path):
        require_intact(files.folder)
    checkpoint = open_paxml(files)
    jobs = [paxml_job(checkpoint, group, array, dtype) for group in groups(dtype) for array in ARRAYS]
    zeros = require_arrays(
        files,
        jobs,
        absent_are_zeros=missing_chunks_are_zeros,
        mend="fetch it again, or pass --missing-chunks-are-zeros if PAXML left it out as zeros",
    )
    step = BENCHMARK_STEP if checkpoint.adam_step is None else checkpoint.adam_step
    options = {"dtype": dtype, "heads": checkpoint.sizes["N"], "missing_chunks_are_zeros": missing_chunks_are_zeros}
    metadata = {name: content for job in jobs for name, content in job.metadata().items()}
    small = small_files([METADATA, COMMON, *metadata], lambda: {**common_files(dtype, step), **metadata})
    tasks, threads = block_tasks(jobs, workers, memory_limit)
    product = Product(
        stage="paxml-to-megatron",
        options=options if md5_list is None else {**options, "md5_list": md5_list},
        source=files,
        tasks=[small, *tasks],  # importing PyTorch for the small files takes a second or two, beside the blocks
        threads=threads,
        packages=("tensorstore", "torch"),
        facts={"adam_step": step, "has_counters": checkpoint.adam_step is not None, "zero_chunks": zeros},
    )
    return produce(product, output, shard=shard, force=force)
