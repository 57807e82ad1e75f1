"""The Megatron zarr layout back to PAXML's, bit by bit in FP32.

The FP32 weights are taken, which in a BF16 checkpoint are the master copy. Two things differ from the checkpoint that
PAXML wrote: the position table has only the 2,048 rows that were kept, and chunks are uncompressed, one layer each.
Its counters say Adam's step, where the checkpoint knows it.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from checkpoint_convert.conversion.block_choice import choose_blocks
from checkpoint_convert.conversion.block_conversion import Job, Target
from checkpoint_convert.conversion.block_sources import open_source
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.run_conversion import Conversion, Converted, run_conversion
from checkpoint_convert.conversion.source_files import LocalFiles
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
from stage.outputs.manifest import require_intact
from stage.sizes import require_workers

SMALL_FILES = ("metadata.json", "common.pt")


def megatron_to_paxml(
    source: Path, output: Path, *, heads: int | None, workers: int, memory_limit: int, force: bool = False
) -> Converted | None:
    """Convert ``source`` to ``output``; None where it was already made from this source.

    ``heads`` may be None where the manifest or the width tells it. Raises InputError for a missing array or chunk, a
    damaged common.pt, a wrong shape or dtype, a value that training cannot leave, or another output under the name.
    """
    require_workers(workers)
    weights = fp32_weights_prefix(source)
    require_intact(source)
    sizes = megatron_axis_sizes(source, weights, heads)
    step = adam_step(source)
    arrays = [(group, array) for group in groups("fp32") for array in ARRAYS]
    names = [_megatron_name(group, array, weights) for group, array in arrays]
    files = LocalFiles(source, [*names, *(name for name in SMALL_FILES if (source / name).exists())])

    def job(group: ArrayGroup, array: Array) -> Job:
        shape = array.megatron_shape(sizes)
        opened = open_source(
            source / _megatron_name(group, array, weights),
            shape,
            shape,
            files,
            like=f"a model of {sizes['N']} heads",
            mend="convert the checkpoint again",
        )
        source_side = Side(array.megatron_groups(), opened.chunks)
        target = Side(array.paxml_groups(), chunk_shape(array.paxml_shape(sizes)))
        chosen = choose_blocks(memory_limit, workers, sizes, source_side, target)
        name = group.paxml_prefix(array, REPEATS) + array.paxml
        targets = (Target(name, np.dtype(np.float32)),)
        return Job(opened, chosen, targets, non_negative=group.megatron == (EXP_AVG_SQ,))

    conversion = Conversion(
        stage="megatron-to-paxml",
        options={"heads": sizes["N"]},
        source=files,
        packages=("tensorstore",),
        jobs=[job(group, array) for group, array in arrays],
        small_files=lambda: _small_files(sizes, step),
        facts={"adam_step": step},
    )
    return run_conversion(conversion, output, inputs=[source], force=force)


def _megatron_name(group: ArrayGroup, array: Array, weights: str) -> str:
    return (weights if group.megatron == (WEIGHTS,) else group.megatron[0]) + array.megatron


def _small_files(sizes: Mapping[str, int], step: int | None) -> dict[str, bytes]:
    """Return by name the counters, where a step is known, and the arrays' metadata."""
    files = {} if step is None else counter_files(step, sizes["L"])
    for group in groups("fp32"):
        for array in ARRAYS:
            shape = array.paxml_shape(sizes)
            name = group.paxml_prefix(array, REPEATS) + array.paxml
            files[f"{name}/{METADATA_FILE}"] = metadata_text(shape, "float32", chunk_shape(shape))
    return files
