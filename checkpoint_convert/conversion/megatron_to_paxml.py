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

from checkpoint_convert.conversion.block_choice import choose_blocks
from checkpoint_convert.conversion.block_sources import open_source, require_chunks
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from checkpoint_convert.conversion.run_conversion import Converted, run_conversion
from checkpoint_convert.conversion.streaming import Job, Target
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
from checkpoint_convert.formats.paxml_counters import counter_files
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, metadata_text
from checkpoint_convert.model_sizes.axis_sizes import megatron_axis_sizes
from stage.limits.sizes import require_workers


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

    def arrays(self) -> list[str]:
        """FP32 weights and moments."""
        return [self._name(group, array) for group in groups("fp32") for array in ARRAYS]

    def jobs(self, files: SourceFiles, workers: int, memory_limit: int) -> list[Job]:
        """One per array. Raises InputError for a missing array or chunk, a wrong shape or dtype."""
        return [self._job(group, array, files, workers, memory_limit) for group in groups("fp32") for array in ARRAYS]

    def _name(self, group: ArrayGroup, array: Array) -> str:
        return (self.weights if group.megatron == (WEIGHTS,) else group.megatron[0]) + array.megatron

    def _job(self, group: ArrayGroup, array: Array, files: SourceFiles, workers: int, memory_limit: int) -> Job:
        path = self.source / self._name(group, array)
        shape = array.megatron_shape(self.sizes)
        opened = open_source(path, shape, like=f"a model of {self.sizes['N']} heads", readers=workers, files=files)
        require_chunks(path, shape, mend="convert the checkpoint again")
        source = Side(array.megatron_groups(), opened.chunks)
        target = Side(array.paxml_groups(), chunk_shape(array.paxml_shape(self.sizes)))
        chosen = choose_blocks(memory_limit, workers, self.sizes, source, target)
        name = group.paxml_prefix(array, REPEATS) + array.paxml
        return Job(opened, chosen, (Target(name, np.dtype(np.float32)),), group.megatron == (EXP_AVG_SQ,))

    def small_files(self) -> dict[str, bytes]:
        step = adam_step(self.source)
        files = {} if step is None else counter_files(step, self.sizes["L"])
        for group in groups("fp32"):
            for array in ARRAYS:
                shape = array.paxml_shape(self.sizes)
                name = group.paxml_prefix(array, REPEATS) + array.paxml
                files[f"{name}/{METADATA_FILE}"] = metadata_text(shape, "float32", chunk_shape(shape))
        return files


def megatron_to_paxml(
    source: Path, output: Path, *, heads: int | None, workers: int, memory_limit: int, force: bool = False
) -> Converted | None:
    """Convert ``source`` to ``output``; None when it was already made from this source.

    ``heads`` may be None where the manifest or the width tells it. Raises InputError for a missing array or chunk, a
    wrong shape or dtype, a value that training cannot leave, or different work under the output's name.
    """
    weights = fp32_weights_prefix(source)
    require_workers(workers)
    conversion = MegatronToPaxmlConversion(source, weights, megatron_axis_sizes(source, weights, heads))
    return run_conversion(conversion, source, output, workers=workers, memory_limit=memory_limit, force=force)
