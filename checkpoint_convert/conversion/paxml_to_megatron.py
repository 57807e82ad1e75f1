"""PAXML's checkpoint to the Megatron zarr layout, byte by byte what the reference's converter writes.

Both layouts: docs/facts/reference.md f.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from checkpoint_convert.conversion.block_choice import choose_blocks
from checkpoint_convert.conversion.block_conversion import Job, Target
from checkpoint_convert.conversion.block_sources import open_source
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.run_conversion import Conversion, Converted, run_conversion
from checkpoint_convert.conversion.source_files import LocalFiles, SourceFiles
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
from checkpoint_convert.formats.common_files import common_files
from checkpoint_convert.formats.paxml_counters import counters_in, paxml_adam_step
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, metadata_text
from checkpoint_convert.model_sizes.axis_sizes import paxml_axis_sizes
from stage.errors import InputError
from stage.outputs.manifest import require_intact
from stage.outputs.shards import Shard
from stage.sizes import require_workers

NUMPY_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
MEND = "fetch it again, or pass --missing-chunks-are-zeros if PAXML left it out as zeros"
BENCHMARK_STEP = 4000
"""Adam's step that the reference's converter writes, whatever it converts."""


@dataclass(frozen=True)
class PaxmlCheckpoint:
    """A PAXML checkpoint, of whose arrays the metadata lies in a local folder."""

    folder: Path
    files: SourceFiles
    sizes: Mapping[str, int]
    """Size of each axis, position rows that are not kept included."""
    adam_step: int | None
    """None where the checkpoint has no counter of steps."""


@dataclass(frozen=True)
class ConversionOptions:
    """How a PAXML checkpoint is converted."""

    dtype: str
    """fp32 or bf16."""
    workers: int
    """Blocks converted at the same time, at most."""
    memory_limit: int
    """Bytes of the blocks in memory."""
    missing_chunks_are_zeros: bool = False

    def __post_init__(self) -> None:
        require_workers(self.workers)


def open_paxml(source: Path) -> PaxmlCheckpoint:
    """Open a checkpoint on a disk. Raises InputError where an array or its manifest says that it is damaged, and where
    its counters contradict each other."""
    if not source.is_dir():
        raise InputError(f"{source}: no such folder")
    require_intact(source)
    sizes = paxml_axis_sizes(source)
    arrays = [array_path(source, group, array, sizes).name for group, array in paxml_arrays()]
    files = LocalFiles(source, [*arrays, *counters_in(source)])
    return PaxmlCheckpoint(source, files, sizes, paxml_adam_step(source))


def paxml_arrays() -> Iterator[tuple[ArrayGroup, Array]]:
    """Yield the arrays of a PAXML checkpoint: weights, then both moments."""
    return ((group, array) for group in groups("fp32") for array in ARRAYS)


def array_path(source: Path, group: ArrayGroup, array: Array, sizes: Mapping[str, int]) -> Path:
    """Return where an array lies. PAXML writes the true number of layers into some names; the benchmark's has 96."""
    path = source / (group.paxml_prefix(array, REPEATS) + array.paxml)
    if not path.exists() and array.stacked:
        return source / (group.paxml_prefix(array, sizes["L"]) + array.paxml)
    return path


def paxml_job(checkpoint: PaxmlCheckpoint, group: ArrayGroup, array: Array, options: ConversionOptions) -> Job:
    """Plan one input array, as ``group`` of an FP32 or BF16 checkpoint names what is made of it. Raises InputError for
    a missing array or chunk, and a wrong shape or dtype."""
    sizes = checkpoint.sizes
    kept = array.kept_sizes(sizes)
    opened = open_source(
        array_path(checkpoint.folder, group, array, sizes),
        array.paxml_shape(kept),
        array.paxml_shape(sizes),
        checkpoint.files,
        like="the weights",
        mend=MEND,
        absent_are_zeros=options.missing_chunks_are_zeros,
    )
    targets = tuple(
        Target(prefix + array.megatron, NUMPY_DTYPES[array_dtype(prefix, options.dtype)]) for prefix in group.megatron
    )
    source = Side(array.paxml_groups(), opened.chunks)
    target = Side(array.megatron_groups(), chunk_shape(array.megatron_shape(sizes)))
    written = sum(target.dtype.itemsize for target in targets)
    chosen = choose_blocks(options.memory_limit, options.workers, kept, source, target, written)
    return Job(opened, chosen, targets, non_negative=group.megatron == (EXP_AVG_SQ,))


def convert_paxml(
    checkpoint: PaxmlCheckpoint,
    output: Path,
    options: ConversionOptions,
    *,
    inputs: Sequence[Path] = (),
    md5_list: str | None = None,
    shard: Shard | None = None,
    force: bool = False,
) -> Converted | None:
    """Convert ``checkpoint`` to ``output``; None where it is there already.

    ``md5_list``: MD5 of the list of sums that its files must have; every shard and the join must have the same list.
    """
    step = BENCHMARK_STEP if checkpoint.adam_step is None else checkpoint.adam_step

    def small_files() -> dict[str, bytes]:
        return {**common_files(options.dtype, step), **_metadata(checkpoint.sizes, options.dtype)}

    conversion = Conversion(
        stage="paxml-to-megatron",
        options={
            "dtype": options.dtype,
            "heads": checkpoint.sizes["N"],
            "missing_chunks_are_zeros": options.missing_chunks_are_zeros,
            **({} if md5_list is None else {"md5_list": md5_list}),
        },
        source=checkpoint.files,
        packages=("tensorstore", "torch"),
        jobs=[paxml_job(checkpoint, group, array, options) for group in groups(options.dtype) for array in ARRAYS],
        small_files=small_files,
        facts={"adam_step": step, "has_counters": checkpoint.adam_step is not None},
    )
    return run_conversion(conversion, output, inputs=inputs, shard=shard, force=force)


def _metadata(sizes: Mapping[str, int], dtype: str) -> dict[str, bytes]:
    """Return the output arrays' metadata by file name."""
    found = {}
    for group in groups(dtype):
        for array in ARRAYS:
            shape = array.megatron_shape(sizes)
            for prefix in group.megatron:
                text = metadata_text(shape, array_dtype(prefix, dtype), chunk_shape(shape))
                found[f"{prefix}{array.megatron}/{METADATA_FILE}"] = text
    return found


def paxml_to_megatron(
    source: Path,
    output: Path,
    *,
    dtype: str,
    workers: int,
    memory_limit: int,
    missing_chunks_are_zeros: bool = False,
    force: bool = False,
    shard: Shard | None = None,
) -> Converted | None:
    """Convert the folder ``source`` to ``output`` (``dtype`` fp32 or bf16); None where it was already made from it.

    ``memory_limit`` in bytes bounds the blocks in memory. ``shard``: write that share only, for a later call to join.
    Raises InputError for a missing array or chunk, a wrong shape or dtype, a value that training cannot leave, or
    another output under the name.
    """
    options = ConversionOptions(dtype, workers, memory_limit, missing_chunks_are_zeros)
    return convert_paxml(open_paxml(source), output, options, inputs=[source], force=force, shard=shard)
