"""The Megatron zarr layout back to PAXML's, bit by bit in FP32.

The FP32 weights are taken, which in a BF16 checkpoint are the master copy. Two things differ from the checkpoint that
PAXML wrote: the position table has only the 2,048 rows that were kept, and chunks are uncompressed, one layer each.
Its counters say Adam's step, where the checkpoint knows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_convert.conversion.block_sources import open_source, require_chunks
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.run_conversion import Converted, run_conversion
from checkpoint_convert.conversion.streaming import Job, Target, blocks_within
from checkpoint_convert.formats.array_table import (
    ARRAYS,
    EXP_AVG_SQ,
    REPEATS,
    WEIGHTS,
    Array,
    ArrayGroup,
    chunk_shape,
    groups,
)
from checkpoint_convert.formats.common_files import adam_step, fp32_weights_prefix
from checkpoint_convert.formats.paxml_counters import write_counters
from checkpoint_convert.formats.zarr_arrays import create_array
from checkpoint_convert.model_sizes.axis_sizes import megatron_axis_sizes
from stage.errors import InputError


@dataclass(frozen=True)
class MegatronToPaxmlConversion:
    """The conversion of one checkpoint."""

    source: Path
    weights: str
    """Prefix of the FP32 weights."""
    sizes: Mapping[str, int]

    stage = "megatron-to-paxml"

    @property
    def options(self) -> dict[str, Any]:
        return {"heads": self.sizes["N"]}

    def jobs(self, workers: int, memory_limit: int) -> list[Job]:
        """One per array. Raises InputError for a missing array or chunk, a wrong shape or dtype."""
        return [self._job(group, array, workers, memory_limit) for group in groups("fp32") for array in ARRAYS]

    def _job(self, group: ArrayGroup, array: Array, workers: int, memory_limit: int) -> Job:
        prefix = self.weights if group.megatron == (WEIGHTS,) else group.megatron[0]
        path = self.source / (prefix + array.megatron)
        shape = array.megatron_shape(self.sizes)
        opened = open_source(path, shape, like=f"a model of {self.sizes['N']} heads", readers=workers)
        require_chunks(path, shape, mend="convert the checkpoint again")
        source = Side(array.megatron_groups(), opened.chunks)
        target = Side(array.paxml_groups(), chunk_shape(array.paxml_shape(self.sizes)))
        chosen = blocks_within(memory_limit, workers, self.sizes, source, target)
        name = group.paxml_prefix(array, REPEATS) + array.paxml
        return Job(opened, chosen, (Target(name, np.dtype(np.float32)),), group.megatron == (EXP_AVG_SQ,))

    def write_small_files(self, folder: Path) -> None:
        for group in groups("fp32"):
            for array in ARRAYS:
                shape = array.paxml_shape(self.sizes)
                path = folder / (group.paxml_prefix(array, REPEATS) + array.paxml)
                create_array(path, shape, "float32", chunk_shape(shape))
        step = adam_step(self.source)
        if step is not None:
            write_counters(folder, step, self.sizes["L"])


def megatron_to_paxml(
    source: Path, output: Path, *, heads: int | None, workers: int, memory_limit: int, force: bool = False
) -> Converted | None:
    """Convert ``source`` to ``output``; None when it was already made from this source.

    ``heads`` may be None where the manifest or the width tells it. Raises InputError for a missing array or chunk, a
    wrong shape or dtype, a value that training cannot leave, or different work under the output's name.
    """
    weights = fp32_weights_prefix(source)
    if workers < 1:
        raise InputError(f"--workers {workers}: expected at least 1")
    conversion = MegatronToPaxmlConversion(source, weights, megatron_axis_sizes(source, weights, heads))
    return run_conversion(conversion, source, output, workers=workers, memory_limit=memory_limit, force=force)
