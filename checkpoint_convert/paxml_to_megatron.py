"""Convert a PAXML checkpoint to the Megatron zarr layout in bounded memory (reference facts f).

The work is cut into blocks that cover whole chunks of the output, and whole chunks of the input where memory allows,
so that no input byte is read more often than its chunking forces. A block is read in Megatron's axis order,
merged, rounded to BF16 where asked, and written.
"""

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_convert.arrays import ARRAYS, REPEATS, Array, Group, array_dtype, chunk_shape, groups
from checkpoint_convert.common import write_common
from checkpoint_convert.zarr import create_array, open_array
from checksums.md5_list import digest_folder, format_list
from stage.digest import md5_text
from stage.errors import InputError
from stage.manifest import Record, is_current, read_manifest, record_of, write_manifest
from stage.progress import progress
from stage.publish import published_folder, write_text

COPIES_IN_MEMORY = 4
"""Of a block: decoded input chunks, the block in the new order, its BF16 copy, and what the writer holds."""
LARGEST_BLOCK_BYTES = 256 << 20


@dataclass(frozen=True)
class Job:
    """One input array and the output arrays made of it."""

    array: Array
    source: Any
    """TensorStore of the input in Megatron's axis order, before merging; only the kept positions."""
    input_chunks: tuple[int, ...]
    """In the same order."""
    targets: tuple[Any, ...]


def paxml_to_megatron(
    source: Path, output: Path, *, dtype: str, workers: int, memory_limit: int, force: bool = False
) -> int | None:
    """Convert ``source`` to ``output`` (``dtype`` fp32 or bf16); returns the bytes written.

    None when ``output`` was already made from this source. ``memory_limit`` in bytes bounds the blocks in flight.
    Raises InputError for a missing array, a wrong shape or dtype, or different work under the output's name.
    """
    started = time.monotonic()
    if not source.is_dir():
        raise InputError(f"{source}: no such folder")
    if workers < 1:
        raise InputError(f"--workers {workers}: expected at least 1")
    options = {"dtype": dtype}
    if not force and is_current(output, stage="paxml-to-megatron", options=options, inputs=[source]):
        return None
    if output.exists() and not force:
        raise InputError(
            f"{output}: exists and was made from another source or options, or its manifest is missing; "
            "choose another --output or pass --force"
        )
    sizes = model_sizes(source)
    opened = [(group, array, _open_source(source, group, array, sizes)) for group in groups(dtype) for array in ARRAYS]
    with published_folder(output) as folder:
        jobs = [_job(folder, group, array, opened_array, dtype, sizes) for group, array, opened_array in opened]
        _run(jobs, workers, memory_limit // (workers * COPIES_IN_MEMORY))
        write_common(folder, dtype)
    return _write_manifest(source, output, options, started)


def model_sizes(source: Path) -> dict[str, int]:
    """Size of each axis of ``arrays.py``, read off the shapes of the weights."""
    sizes: dict[str, int] = {}
    for array in ARRAYS:
        path = source / (groups("fp32")[0].paxml_prefix(array, REPEATS) + array.paxml)
        shape = open_array(path).shape
        axes = array.paxml_axes.split()
        if len(shape) != len(axes):
            raise InputError(f"{path}: shape {list(shape)}, expected the axes {array.paxml_axes}")
        for axis, size in zip(axes, shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise InputError(f"{path}: shape {list(shape)}, but axis {axis} is {sizes[axis]} in other arrays")
    if sizes["C"] != 3 or sizes["N"] * sizes["D"] != sizes["H"]:
        raise InputError(f"{source}: axes {sizes} are not those of a GPT-3 model (C = 3, N x D = H)")
    return sizes


def _open_source(source: Path, group: Group, array: Array, sizes: Mapping[str, int]) -> Any:
    path = source / (group.paxml_prefix(array, REPEATS) + array.paxml)
    if not path.exists() and array.stacked:  # PAXML writes the true number of layers; the benchmark's has 96
        path = source / (group.paxml_prefix(array, sizes["L"]) + array.paxml)
    opened = open_array(path)
    expected = array.paxml_shape(sizes)
    if tuple(opened.shape) != expected:
        raise InputError(f"{path}: shape {list(opened.shape)}, expected {list(expected)} like the weights")
    if opened.dtype.numpy_dtype != np.float32:
        raise InputError(f"{path}: dtype {opened.dtype.name}, expected float32")
    return opened


def _job(folder: Path, group: Group, array: Array, opened: Any, dtype: str, sizes: Mapping[str, int]) -> Job:
    shape = array.megatron_shape(sizes)
    targets = tuple(
        create_array(folder / (prefix + array.megatron), shape, array_dtype(prefix, dtype), chunk_shape(shape))
        for prefix in group.megatron
    )
    order = array.permutation()
    view = opened.transpose(order)
    if array.paxml_axes.startswith("P"):
        view = view[: shape[0]]
    chunks = opened.chunk_layout.read_chunk.shape
    return Job(array, view, tuple(chunks[axis] for axis in order), targets)


def _run(jobs: Sequence[Job], workers: int, block_bytes: int) -> None:
    total = sum(target.dtype.numpy_dtype.itemsize * math.prod(target.shape) for job in jobs for target in job.targets)
    with progress("convert", total, "bytes") as advance, ThreadPoolExecutor(workers) as pool:
        running: set[Future[int]] = set()
        for job in jobs:
            for block in blocks(job, block_bytes):
                running.add(pool.submit(_convert_block, job, block))
                if len(running) >= workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    advance(sum(future.result() for future in done))
        advance(sum(future.result() for future in running))


def _convert_block(job: Job, block: tuple[slice, ...]) -> int:
    try:
        values = job.source[block].read().result()
    except ValueError as error:  # what TensorStore raises for a damaged chunk
        raise InputError(f"{job.array.paxml}: a chunk cannot be read ({str(error).splitlines()[0]})") from error
    place, shape = [], []
    axis = 0
    for group in job.array.megatron_groups():
        inner = math.prod(job.source.shape[axis + 1 : axis + len(group)])
        place.append(slice(block[axis].start * inner, block[axis].stop * inner))
        shape.append(math.prod(values.shape[axis : axis + len(group)]))
        axis += len(group)
    values = values.reshape(shape)
    written = 0
    for target in job.targets:
        rounded = values.astype(target.dtype.numpy_dtype)
        target[tuple(place)].write(rounded).result()
        written += rounded.nbytes
    return written


def blocks(job: Job, block_bytes: int) -> Iterator[tuple[slice, ...]]:
    """Cut the unmerged, reordered array into blocks of at most ``block_bytes``.

    Every block covers whole output chunks, so that no two blocks write to one file. Raises InputError when the
    smallest such block is larger.
    """
    shape = tuple(job.source.shape)
    steps = _output_steps(job)
    extent = [
        min(math.lcm(step, chunk), size) for step, chunk, size in zip(steps, job.input_chunks, shape, strict=True)
    ]
    limit = block_bytes // 4  # items of float32
    for axis in sorted(range(len(shape)), key=lambda axis: steps[axis] / extent[axis]):
        if math.prod(extent) > limit:  # read some input chunks more than once rather than hold too much
            extent[axis] = steps[axis]
    if math.prod(extent) > limit:
        raise InputError(
            f"--memory-limit is too small: one block of {job.array.megatron} takes {4 * math.prod(extent)} bytes "
            f"in {COPIES_IN_MEMORY} copies per worker; raise it or lower --workers"
        )
    limit = min(limit, LARGEST_BLOCK_BYTES // 4)
    for axis in reversed(range(len(shape))):
        while extent[axis] < shape[axis] and math.prod(extent) * 2 <= limit:
            extent[axis] = min(2 * extent[axis], shape[axis])
    cuts = [
        [slice(start, min(start + length, size)) for start in range(0, size, length)]
        for length, size in zip(extent, shape, strict=True)
    ]
    yield from itertools.product(*cuts)


def _output_steps(job: Job) -> list[int]:
    """Smallest extent of each unmerged axis that ends on an output chunk's edge."""
    steps: list[int] = []
    for group, chunk in zip(job.array.megatron_groups(), job.targets[0].chunk_layout.write_chunk.shape, strict=True):
        sizes = job.source.shape[len(steps) : len(steps) + len(group)]
        inner = math.prod(sizes[1:])
        steps += [min(math.lcm(chunk, inner) // inner, sizes[0]), *sizes[1:]]
    return steps


def _write_manifest(source: Path, output: Path, options: Mapping[str, Any], started: float) -> int:
    listing = format_list(digest_folder(output))
    list_path = output.with_name(output.name + ".md5")
    write_text(list_path, listing)
    made_by = read_manifest(source)
    digest = made_by.outputs[0].md5 if made_by else None
    inputs: list[Record] = [record_of(source, str(source), digest)]
    outputs = [record_of(output, output.name, md5_text(listing))]
    write_manifest(
        output,
        stage="paxml-to-megatron",
        options=options,
        inputs=inputs,
        outputs=outputs,
        packages=["tensorstore", "numpy", "ml-dtypes"],
        started=started,
    )
    return outputs[0].bytes
