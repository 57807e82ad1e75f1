"""Convert one layer of the largest 175B arrays, at full size, under a memory limit.

python -m tests.speed.full_size_layer FOLDER [--memory-limit 4GiB]

Makes PAXML's ffn_layer1 (1 x 12288 x 49152) and combined_qkv (1 x 3 x 12288 x 96 x 128), 2.4 and 1.8 GB, converts both
in a fresh process to BF16 and FP32, and compares values at random places. The memory is that of the process.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from checkpoint_convert.conversion.block_conversion import run_tasks, tasks_of
from checkpoint_convert.conversion.blocks import choose_blocks
from checkpoint_convert.conversion.conversion_plan import BENCHMARK_SIZES
from checkpoint_convert.conversion.paxml_to_megatron import PaxmlCheckpoint, paxml_job
from checkpoint_convert.formats.array_table import ARRAYS, Array, array_dtype, axis_groups, chunk_shape, groups
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.zarr_arrays import create_array, open_zarr, zarr_array
from stage.outputs.manifest import Recipe
from stage.outputs.resumable_output import resumable_output
from stage.sizes import parse_bytes

SIZES = {**BENCHMARK_SIZES, "L": 1}
LARGEST = [array for array in ARRAYS if array.paxml.endswith(("ffn_layer1.linear.w", "combined_qkv.w"))]
CHUNKS = {"C": 3, "H": 192, "F": 2048, "N": 4, "D": 128, "L": 1}  # shards of 64 x 24 devices
PLACES = 2000


def name_of(array: Array) -> str:
    return groups("bf16")[0].paxml_name(array)


def make(folder: Path) -> None:
    random = np.random.default_rng(1)
    for array in LARGEST:
        chunks = [CHUNKS[axis] for axis in array.paxml_axes.split()]
        path = folder / name_of(array)
        store = create_array(path, array.paxml_shape(SIZES), "float32", chunks)
        rows = store.chunk_layout.write_chunk.shape[array.paxml_axes.split().index("H")]
        axis = array.paxml_axes.split().index("H")
        for start in range(0, SIZES["H"], rows):
            place = [slice(None)] * len(store.shape)
            place[axis] = slice(start, start + rows)
            shape = [*store.shape]
            shape[axis] = rows
            store[tuple(place)].write(random.standard_normal(shape, np.float32)).result()


def convert(folder: Path, memory_limit: int) -> None:
    group, files, output = groups("bf16")[0], LocalFiles(folder / "paxml"), folder / "out"
    arrays = {(group.paxml_stacked, array.paxml): open_zarr(files, name_of(array)) for array in LARGEST}
    jobs = [paxml_job(PaxmlCheckpoint(files, arrays, SIZES, None), group, array, "bf16") for array in LARGEST]
    for stored in arrays.values():
        files.ask(f"{stored.name}/{key}" for key in stored.keys_within(stored.shape))
    choice = choose_blocks(memory_limit, len(os.sched_getaffinity(0)), [job.axes for job in jobs])
    tasks = tasks_of(jobs, choice)
    started = time.perf_counter()
    with resumable_output(output, Recipe("full-size layer", {}, [])) as work:
        assert work is not None
        run_tasks(tasks, choice, work)
        work.path("").rename(output)
    for array in LARGEST:
        shape = array.megatron_shape(SIZES)
        for prefix in group.megatron:
            create_array(output / (prefix + array.megatron), shape, array_dtype(prefix, "bf16"), chunk_shape(shape))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{sum(task.bytes for task in tasks) / 1e9:.1f} GB written in {time.perf_counter() - started:.0f} s")
    print(f"memory of the process: {peak / 1024:.0f} MiB, limit {memory_limit / 2**20:.0f} MiB")


def compare(folder: Path) -> None:
    random = np.random.default_rng(2)
    for array in LARGEST:
        group = groups("bf16")[0]
        source = zarr_array(folder / "paxml" / name_of(array))
        targets = [zarr_array(folder / "out" / (prefix + array.megatron)) for prefix in group.megatron]
        axes = array.paxml_axes.split()
        for _ in range(PLACES):
            index = {axis: int(random.integers(SIZES[axis])) for axis in axes}
            place = []
            for merged in axis_groups(array.megatron_axes):
                position = 0
                for axis in merged:
                    position = position * SIZES[axis] + index[axis]
                place.append(position)
            value = source.read(tuple(slice(index[axis], index[axis] + 1) for axis in axes)).item()
            for target in targets:
                found = target.read(tuple(slice(at, at + 1) for at in place)).reshape(())
                assert found == np.float32(value).astype(found.dtype), (array.megatron, place)
        print(f"{array.megatron}: {len(targets)} arrays, {PLACES:,} values each as they should be")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--memory-limit", default="4GiB")
    parser.add_argument("--convert", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.convert:
        convert(chosen.folder, parse_bytes(chosen.memory_limit, "--memory-limit"))
        return
    make(chosen.folder / "paxml")
    arguments = [str(chosen.folder), "--memory-limit", chosen.memory_limit, "--convert"]
    subprocess.run([sys.executable, "-m", "tests.speed.full_size_layer", *arguments], check=True)
    compare(chosen.folder)


if __name__ == "__main__":
    main()
