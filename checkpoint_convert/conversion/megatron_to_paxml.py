"""Convert the Megatron zarr layout back to PAXML's, bit by bit in FP32.

The FP32 weights are converted; in a BF16 checkpoint they are the master copy. Two things differ from the checkpoint
that PAXML wrote: the position table has only the 2,048 rows that were kept, and chunks are uncompressed, one layer
each. The counters hold Adam's step, if the checkpoint has it.
"""

from collections.abc import Mapping
from pathlib import Path

from checkpoint_convert.conversion.block_conversion import FP32, Job, block_tasks, require_arrays
from checkpoint_convert.conversion.blocks import ArrayAxes, Side
from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG_SQ, WEIGHTS, Array, ArrayGroup, chunk_shape, groups
from checkpoint_convert.formats.axis_sizes import attention_heads, megatron_axis_sizes
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.step_files import adam_step, counter_files, fp32_weights_prefix
from checkpoint_convert.formats.summed_output import Produced, Product, produce, small_files
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, ZarrArray, open_zarr
from checksums.common_file import COMMON, METADATA
from foundation.outputs.manifest import require_intact


def megatron_to_paxml(
    source: Path, output: Path, *, heads: int | None, workers: int, memory_limit: int, force: bool = False
) -> Produced | None:
    """Convert ``source`` to ``output``; return None if it was already made from this source.

    ``heads`` may be None if the manifest or the width gives the number. Raises InputError for a missing array or chunk,
    a damaged common.pt, a wrong shape or dtype, a value that training cannot leave, or another output under the name.
    The cases of :func:`block_tasks` and :func:`produce` are errors, too.
    """
    weights = fp32_weights_prefix(source)
    require_intact(source)
    step, files = adam_step(source), LocalFiles(source)
    prefixes = {group: weights if group.megatron == (WEIGHTS,) else group.megatron[0] for group in groups("fp32")}
    opened = {
        (group, array): open_zarr(files, prefix + array.megatron)
        for group, prefix in prefixes.items()
        for array in ARRAYS
    }
    shapes = {array: stored.shape for (group, array), stored in opened.items() if group.megatron == (WEIGHTS,)}
    sizes = megatron_axis_sizes(source, shapes, lambda hidden: attention_heads(source, hidden, heads))
    files.ask([METADATA, COMMON, *(f"{stored.name}/{METADATA_FILE}" for stored in opened.values())])
    jobs = [_job(group, array, stored, sizes) for (group, array), stored in opened.items()]
    require_arrays(files, jobs, absent_are_zeros=False, mend="convert the checkpoint again")
    tasks, threads = block_tasks(jobs, workers, memory_limit)
    small = {} if step is None else counter_files(step, sizes["L"])
    for job in jobs:
        small |= job.metadata()
    product = Product(
        stage="megatron-to-paxml",
        options={"heads": sizes["N"]},
        source=files,
        tasks=[small_files(small, lambda: small), *tasks],
        threads=threads,
        packages=("tensorstore",),
        facts={"adam_step": step, "zero_chunks": 0},
    )
    return produce(product, output, force=force)


def _job(group: ArrayGroup, array: Array, stored: ZarrArray, sizes: Mapping[str, int]) -> Job:
    target = Side(array.paxml_axes, chunk_shape(array.paxml_shape(sizes)))
    axes = ArrayAxes(sizes, Side(array.megatron_axes, stored.chunks), target)
    is_second = group.megatron == (EXP_AVG_SQ,)
    return Job(stored, array.megatron_shape(sizes), axes, {group.paxml_name(array): FP32}, non_negative=is_second)
