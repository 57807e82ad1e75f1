"""The Megatron zarr layout back to PAXML's, bit by bit in FP32.

The FP32 weights are taken, which in a BF16 checkpoint are the master copy. Two things differ from the checkpoint that
PAXML wrote: the position table has only the 2,048 rows that were kept, and chunks are uncompressed, one layer each.
Its counters say Adam's step, where the checkpoint knows it.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from checkpoint_convert.conversion.block_conversion import Job, Target
from checkpoint_convert.conversion.blocks import ArrayAxes, Side
from checkpoint_convert.conversion.run_conversion import Conversion, Converted, Running, run_conversion
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
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, ZarrArray, metadata_text, open_zarr
from checkpoint_convert.model_sizes.axis_sizes import megatron_axis_sizes
from checkpoint_convert.model_sizes.run_files import attention_heads
from checksums.common_file import COMMON, METADATA
from stage.errors import InputError
from stage.outputs.manifest import require_intact

FP32 = np.dtype(np.float32)


def megatron_to_paxml(
    source: Path, output: Path, *, heads: int | None, workers: int, memory_limit: int, force: bool = False
) -> Converted | None:
    """Convert ``source`` to ``output``; None where it was already made from this source.

    ``heads`` may be None where the manifest or the width tells it. Raises InputError for a missing array or chunk, a
    damaged common.pt, a wrong shape or dtype, a value that training cannot leave, or another output under the name.
    """
    running = Running(workers, memory_limit, force=force)
    weights = fp32_weights_prefix(source)
    require_intact(source)
    step = adam_step(source)
    files = LocalFiles(source)
    opened = {
        (group, array): open_zarr(
            files, (weights if group.megatron == (WEIGHTS,) else group.megatron[0]) + array.megatron
        )
        for group in groups("fp32")
        for array in ARRAYS
    }
    shapes = {array: opened[groups("fp32")[0], array].shape for array in ARRAYS}
    sizes = megatron_axis_sizes(source, shapes, lambda hidden: attention_heads(source, hidden, heads))
    files.ask([METADATA, COMMON])
    for (_, array), stored in opened.items():
        _require_whole(files, stored, array.megatron_shape(sizes))

    def job(group: ArrayGroup, array: Array) -> Job:
        stored = opened[group, array]
        source_side = Side(array.megatron_groups(), stored.chunks)
        target = Side(array.paxml_groups(), chunk_shape(array.paxml_shape(sizes)))
        name = group.paxml_prefix(array, REPEATS) + array.paxml
        axes = ArrayAxes(sizes, source_side, target)
        return Job(stored, axes, (Target(name, FP32),), non_negative=group.megatron == (EXP_AVG_SQ,))

    conversion = Conversion(
        stage="megatron-to-paxml",
        options={"heads": sizes["N"]},
        source=files,
        packages=("tensorstore",),
        jobs=[job(group, array) for group, array in opened],
        small_files=lambda: _small_files(sizes, step),
        facts={"adam_step": step, "zero_chunks": 0},
    )
    return run_conversion(conversion, output, running)


def _require_whole(files: LocalFiles, stored: ZarrArray, expected: tuple[int, ...]) -> None:
    """Raise InputError for an array of another shape or dtype, and for a chunk that is not there."""
    if (stored.shape, stored.dtype) != (expected, FP32):
        found = f"{list(stored.shape)} {stored.dtype.name}"
        raise InputError(f"{stored.where}: {found}, expected {list(expected)} float32 like the weights")
    keys = list(stored.keys_within(stored.shape))
    files.ask(f"{stored.name}/{key}" for key in [METADATA_FILE, *keys])
    absent = next((key for key in keys if not files.has(f"{stored.name}/{key}")), None)
    if absent is not None:
        raise InputError(f"{stored.where}: chunk {absent} is missing; convert the checkpoint again")


def _small_files(sizes: Mapping[str, int], step: int | None) -> dict[str, bytes]:
    """Return by name the counters, where a step is known, and the arrays' metadata."""
    files = {} if step is None else counter_files(step, sizes["L"])
    for group in groups("fp32"):
        for array in ARRAYS:
            shape = array.paxml_shape(sizes)
            name = group.paxml_prefix(array, REPEATS) + array.paxml
            files[f"{name}/{METADATA_FILE}"] = metadata_text(shape, "float32", chunk_shape(shape))
    return files
