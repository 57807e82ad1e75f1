"""PAXML's checkpoint to the Megatron zarr layout, byte by byte what the reference's converter writes.

Both layouts: docs/facts/reference.md f.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from checkpoint_convert.conversion.block_choice import choose_blocks
from checkpoint_convert.conversion.block_sources import BlockSource, open_source, require_chunks
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from checkpoint_convert.conversion.run_conversion import Converted, run_conversion
from checkpoint_convert.conversion.streaming import Job, Target
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
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, absent_chunks_are_zeros, metadata_text
from checkpoint_convert.model_sizes.axis_sizes import paxml_axis_sizes
from stage.errors import InputError
from stage.limits.sizes import require_workers
from stage.task_shard import TaskShard

NUMPY_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True)
class PaxmlToMegatronConversion:
    """The conversion of one checkpoint."""

    source: Path
    dtype: str
    """fp32 or bf16."""
    sizes: Mapping[str, int]
    """Of each axis, position rows that are not kept included."""
    missing_chunks_are_zeros: bool

    stage = "paxml-to-megatron"

    @property
    def options(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "heads": self.sizes["N"]}

    def arrays(self) -> list[str]:
        """Weights, moments and counters."""
        paths = (array_path(self.source, group, array, self.sizes) for group in groups("fp32") for array in ARRAYS)
        return [*(path.name for path in paths), *counters_in(self.source)]

    def jobs(self, files: SourceFiles, workers: int, memory_limit: int) -> list[Job]:
        """One per input array. Raises InputError for a missing array or chunk, a wrong shape or dtype."""
        return [
            self.job(group, array, files, workers, memory_limit) for group in groups(self.dtype) for array in ARRAYS
        ]

    def job(self, group: ArrayGroup, array: Array, files: SourceFiles, workers: int, memory_limit: int) -> Job:
        path = array_path(self.source, group, array, self.sizes)
        kept = array.paxml_shape(array.kept_sizes(self.sizes))
        opened = self.opened(path, array.paxml_shape(self.sizes), kept, files, workers)
        targets = tuple(
            Target(prefix + array.megatron, NUMPY_DTYPES[array_dtype(prefix, self.dtype)]) for prefix in group.megatron
        )
        source = Side(array.paxml_groups(), opened.chunks)
        target = Side(array.megatron_groups(), chunk_shape(array.megatron_shape(self.sizes)))
        non_negative = group.megatron == (EXP_AVG_SQ,)
        written = sum(target.dtype.itemsize for target in targets)
        chosen = choose_blocks(memory_limit, workers, array.kept_sizes(self.sizes), source, target, written)
        return Job(opened, chosen, targets, non_negative)

    def opened(
        self, path: Path, shape: Sequence[int], kept: Sequence[int], files: SourceFiles, workers: int
    ) -> BlockSource:
        """An array of ``shape``, of which the chunks within ``kept`` are needed."""
        missing_are_zeros = self.missing_chunks_are_zeros and absent_chunks_are_zeros(path)
        source = open_source(
            path, shape, like="the weights", readers=workers, files=files, missing_are_zeros=missing_are_zeros
        )
        if not missing_are_zeros:
            mend = "fetch it again, or pass --missing-chunks-are-zeros if PAXML left it out as zeros"
            if self.missing_chunks_are_zeros:
                mend = "fetch it again (its fill_value says that it stands for something else than zeros)"
            require_chunks(path, kept, mend=mend)
        return source

    def small_files(self) -> dict[str, bytes]:
        files = common_files(self.dtype, paxml_adam_step(self.source))
        for group in groups(self.dtype):
            for array in ARRAYS:
                shape = array.megatron_shape(self.sizes)
                for prefix in group.megatron:
                    text = metadata_text(shape, array_dtype(prefix, self.dtype), chunk_shape(shape))
                    files[f"{prefix}{array.megatron}/{METADATA_FILE}"] = text
        return files


def array_path(source: Path, group: ArrayGroup, array: Array, sizes: Mapping[str, int]) -> Path:
    """Where an array lies. PAXML writes the true number of layers into some names; the benchmark's has 96."""
    path = source / (group.paxml_prefix(array, REPEATS) + array.paxml)
    if not path.exists() and array.stacked:
        return source / (group.paxml_prefix(array, sizes["L"]) + array.paxml)
    return path


def paxml_to_megatron(
    source: Path,
    output: Path,
    *,
    dtype: str,
    workers: int,
    memory_limit: int,
    missing_chunks_are_zeros: bool = False,
    force: bool = False,
    shard: TaskShard | None = None,
) -> Converted | None:
    """Convert ``source`` to ``output`` (``dtype`` fp32 or bf16); None when it was already made from this source.

    ``memory_limit`` in bytes bounds the blocks in memory. ``shard``: write that share only, for a later call to join.

    Raises InputError for a missing array or chunk, a wrong shape or dtype, a value that training cannot leave, or
    different work under the output's name.
    """
    if not source.is_dir():
        raise InputError(f"{source}: no such folder")
    require_workers(workers)
    conversion = PaxmlToMegatronConversion(source, dtype, paxml_axis_sizes(source), missing_chunks_are_zeros)
    return run_conversion(
        conversion, source, output, workers=workers, memory_limit=memory_limit, force=force, shard=shard
    )
