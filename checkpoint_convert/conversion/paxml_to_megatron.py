"""PAXML's checkpoint to the Megatron zarr layout, byte by byte what the reference's converter writes.

Both layouts: docs/facts/reference.md f.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from checkpoint_convert.conversion.block_sources import open_source, require_chunks
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.run_conversion import Converted, run_conversion
from checkpoint_convert.conversion.streaming import Job, Target, blocks_within
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
from checkpoint_convert.formats.common_files import write_common
from checkpoint_convert.formats.paxml_counters import paxml_adam_step
from checkpoint_convert.formats.zarr_arrays import create_array
from checkpoint_convert.model_sizes.axis_sizes import paxml_axis_sizes
from stage.errors import InputError

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

    def jobs(self, workers: int, memory_limit: int) -> list[Job]:
        """One per input array. Raises InputError for a missing array or chunk, a wrong shape or dtype."""
        return [self.job(group, array, workers, memory_limit) for group in groups(self.dtype) for array in ARRAYS]

    def job(self, group: ArrayGroup, array: Array, workers: int, memory_limit: int) -> Job:
        path = array_path(self.source, group, array, self.sizes)
        opened = open_source(path, array.paxml_shape(self.sizes), like="the weights", readers=workers)
        if not self.missing_chunks_are_zeros:
            mend = "fetch it again, or pass --missing-chunks-are-zeros if PAXML left it out as zeros"
            require_chunks(path, array.paxml_shape(array.kept_sizes(self.sizes)), mend=mend)
        targets = tuple(
            Target(prefix + array.megatron, NUMPY_DTYPES[array_dtype(prefix, self.dtype)]) for prefix in group.megatron
        )
        source = Side(array.paxml_groups(), opened.chunks)
        target = Side(array.megatron_groups(), chunk_shape(array.megatron_shape(self.sizes)))
        non_negative = group.megatron == (EXP_AVG_SQ,)
        chosen = blocks_within(memory_limit, workers, array.kept_sizes(self.sizes), source, target)
        return Job(opened, chosen, targets, non_negative)

    def write_small_files(self, folder: Path) -> None:
        for group in groups(self.dtype):
            for array in ARRAYS:
                shape = array.megatron_shape(self.sizes)
                for prefix in group.megatron:
                    dtype = array_dtype(prefix, self.dtype)
                    create_array(folder / (prefix + array.megatron), shape, dtype, chunk_shape(shape))
        write_common(folder, self.dtype, paxml_adam_step(self.source))


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
) -> Converted | None:
    """Convert ``source`` to ``output`` (``dtype`` fp32 or bf16); None when it was already made from this source.

    ``memory_limit`` in bytes bounds the blocks in memory. Raises InputError for a missing array or chunk, a wrong
    shape or dtype, a value that training cannot leave, or different work under the output's name.
    """
    if not source.is_dir():
        raise InputError(f"{source}: no such folder")
    if workers < 1:
        raise InputError(f"--workers {workers}: expected at least 1")
    conversion = PaxmlToMegatronConversion(source, dtype, paxml_axis_sizes(source), missing_chunks_are_zeros)
    return run_conversion(conversion, source, output, workers=workers, memory_limit=memory_limit, force=force)
