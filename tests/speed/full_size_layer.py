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
from checkpoint_convert.conversion.conversion_plan import BENCHMARK_SIZES
from checkpoint_convert.conversion.paxml_to_megatron import ConversionOptions, PaxmlCheckpoint, array_path, paxml_job
from checkpoint_convert.conversion.source_files import LocalFiles
from checkpoint_convert.formats.array_table import ARRAYS, array_dtype, chunk_shape, groups
from checkpoint_convert.formats.zarr_arrays import create_array, open_array
from stage.outputs.manifest import Recipe
from stage.outputs.resumable_output import resumable_output
from stage.sizes import parse_bytes

SIZES = {**BENCHMARK_SIZES, "L": 1}
LARGEST = [array for array in ARRAYS if array.paxml.endswith(("ffn_layer1.linear.w", "combined_qkv.w"))]
CHUNKS = {"C": 3, "H": 192, "F": 2048, "N": 4, "D": 128, "L": 1}  # shards of 64 x 24 devices
PLACES = 2000


def make(folder: Path) -> None:
    random = np.random.default_rng(1)
    for array in LARGEST:
        chunks = [CHUNKS[axis] for axis in array.paxml_axes.split()]
        path = folder / (groups("bf16")[0].paxml_prefix(array, 96) + array.paxml)
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
    group, paxml = groups("bf16")[0], folder / "paxml"
    files = LocalFiles(paxml, [array_path(paxml, group, array, SIZES).name for array in LARGEST])
    checkpoint = PaxmlCheckpoint(paxml, files, SIZES, None)
    options = ConversionOptions("bf16", len(os.sched_getaffinity(0)), memory_limit)
    jobs = [paxml_job(checkpoint, group, array, options) for array in LARGEST]
    output = folder / "out"
    started = time.perf_counter()
    with resumable_output(output, Recipe("full-size layer", {}, [])) as work:
        assert work is not None
        run_tasks(tasks_of(jobs), work)
        work.path("files").rename(output)
    for array in LARGEST:
        shape = array.megatron_shape(SIZES)
        for prefix in group.megatron:
            create_array(output / (prefix + array.megatron), shape, array_dtype(prefix, "bf16"), chunk_shape(shape))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{sum(job.bytes for job in jobs) / 1e9:.1f} GB written in {time.perf_counter() - started:.0f} s")
    print(f"memory of the process: {peak / 1024:.0f} MiB, limit {memory_limit / 2**20:.0f} MiB")


def compare(folder: Path) -> None:
    random = np.random.default_rng(2)
    for array in LARGEST:
        group = groups("bf16")[0]
        source = open_array(folder / "paxml" / (group.paxml_prefix(array, 96) + array.paxml))
        targets = [open_array(folder / "out" / (prefix + array.megatron)) for prefix in group.megatron]
        axes = array.paxml_axes.split()
        for _ in range(PLACES):
            index = {axis: int(random.integers(SIZES[axis])) for axis in axes}
            place = []
            for merged in array.megatron_groups():
                position = 0
                for axis in merged:
                    position = position * SIZES[axis] + index[axis]
                place.append(position)
            value = source[tuple(index[axis] for axis in axes)].read().result()
            for target in targets:
                found = target[tuple(place)].read().result()
                assert found == value.astype(found.dtype), (array.megatron, place)
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
