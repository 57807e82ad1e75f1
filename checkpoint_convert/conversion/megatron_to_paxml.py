"""Convert the Megatron zarr layout back to PAXML's, bit by bit in FP32.

The FP32 weights are converted; in a BF16 checkpoint they are the master copy. Two things differ from the checkpoint
that PAXML wrote: the position table has only the 2,048 rows that were kept, and chunks are uncompressed, one layer
each. The counters hold Adam's step, if the checkpoint has it.
"""

from pathlib import Path

from checkpoint_convert.conversion.block_conversion import Job
from checkpoint_convert.conversion.blocks import ArrayAxes, Side
from checkpoint_convert.conversion.run_conversion import Conversion, Converted, run_conversion
from checkpoint_convert.conversion.source_arrays import FP32, Expected, metadata_files, require_arrays
from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG_SQ, WEIGHTS, chunk_shape, groups
from checkpoint_convert.formats.axis_sizes import megatron_axis_sizes
from checkpoint_convert.formats.common_files import adam_step, fp32_weights_prefix
from checkpoint_convert.formats.paxml_counters import counter_files
from checkpoint_convert.formats.run_files import attention_heads
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, open_zarr
from checksums.common_file import COMMON, METADATA
from stage.outputs.manifest import require_intact


def megatron_to_paxml(
    source: Path, output: Path, *, heads: int | None, workers: int, memory_limit: int, force: bool = False
) -> Converted | None:
    """Convert ``source`` to ``output``; return None if it was already made from this source.

    ``heads`` may be None if the manifest or the width gives the number. Raises InputError for a missing array or chunk,
    a damaged common.pt, a wrong shape or dtype, a value that training cannot leave, or another output under the name,
    and in the cases of :func:`run_conversion`.
    """
    weights = fp32_weights_prefix(source)
    require_intact(source)
    step, files = adam_step(source), LocalFiles(source)
    arrays = [(group, array) for group in groups("fp32") for array in ARRAYS]
    prefixes = [weights if group.megatron == (WEIGHTS,) else group.megatron[0] for group, _ in arrays]
    opened = [open_zarr(files, prefix + array.megatron) for prefix, (_, array) in zip(prefixes, arrays, strict=True)]
    shapes = {array: stored.shape for array, stored in zip(ARRAYS, opened, strict=False)}
    sizes = megatron_axis_sizes(source, shapes, lambda hidden: attention_heads(source, hidden, heads))
    files.ask([METADATA, COMMON, *(f"{stored.name}/{METADATA_FILE}" for stored in opened)])
    expected = [
        Expected(stored, array.megatron_shape(sizes), stored.shape)
        for (_, array), stored in zip(arrays, opened, strict=True)
    ]
    require_arrays(files, expected, absent_are_zeros=False, mend="convert the checkpoint again")
    jobs, written = [], []
    for (group, array), stored in zip(arrays, opened, strict=True):
        name, shape = group.paxml_name(array), array.paxml_shape(sizes)
        target = Side(array.paxml_axes, chunk_shape(shape))
        axes = ArrayAxes(sizes, Side(array.megatron_axes, stored.chunks), target)
        jobs.append(Job(stored, axes, {name: FP32}, non_negative=group.megatron == (EXP_AVG_SQ,)))
        written.append((name, shape, "float32"))
    conversion = Conversion(
        stage="megatron-to-paxml",
        options={"heads": sizes["N"]},
        source=files,
        packages=("tensorstore",),
        jobs=jobs,
        small_files=lambda: {
            **({} if step is None else counter_files(step, sizes["L"])),
            **metadata_files(written),
        },
        facts={"adam_step": step, "zero_chunks": 0},
    )
    return run_conversion(conversion, output, workers=workers, memory_limit=memory_limit, force=force)
