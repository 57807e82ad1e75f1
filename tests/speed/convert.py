"""How fast a checkpoint is converted, against copying its result and against loading whole arrays, in one run.

python -m tests.speed.convert FOLDER [--layers 3] [--hidden 2048] [--repeat 2]

Makes random PAXML checkpoints of about 2 GB in FOLDER, with and without gzip. Each side is a
fresh process; the best of the repetitions counts. "Whole arrays" is what the reference's converter does: read an array,
reorder it in memory, write it. Then the memory of a checkpoint four times as deep, with chunks of the same size.
"""

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from checkpoint_convert.conversion.paxml_to_megatron import array_path
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.formats.array_table import ARRAYS, array_dtype, chunk_shape, groups
from checkpoint_convert.formats.zarr_arrays import create_array, open_array
from checkpoint_convert.model_sizes.axis_sizes import paxml_axis_sizes

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Measured:
    wall_s: float
    cpu_s: float
    peak_mib: float


def whole_arrays(source: Path, output: Path, dtype: str) -> None:
    """The straightforward conversion, array by array."""
    sizes = paxml_axis_sizes(source)
    for group in groups(dtype):
        for array in ARRAYS:
            values = open_array(array_path(source, group, array, sizes)).read().result()
            shape = array.megatron_shape(sizes)
            if array.paxml_axes.startswith("P"):
                values = values[: shape[0]]
            values = np.ascontiguousarray(values.transpose(array.permutation())).reshape(shape)
            for prefix in group.megatron:
                kind = array_dtype(prefix, dtype)
                target = create_array(output / (prefix + array.megatron), shape, kind, chunk_shape(shape))
                target.write(values.astype(target.dtype.numpy_dtype)).result()


def run(*command: object) -> Measured:
    """Run a command to its end, alone, and bring what it wrote to the disk."""
    started = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {command}")
    os.sync()
    return Measured(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def convert(source: Path, output: Path, dtype: str, *more: object) -> Measured:
    arguments = ["--input", source, "--output", output, "--dtype", dtype, "--force", *more]
    return run(sys.executable, "-m", "checkpoint_convert", "paxml-to-megatron", *arguments)


def make(folder: Path, layers: int, hidden: int, *, compress: bool = True, layers_together: bool = True) -> Path:
    """In a process of its own: one that is measured starts with its parent's peak."""
    sizes = ModelSizes(layers=layers, hidden=hidden, heads=hidden // 128, vocab=4 * hidden)
    options = {"seed": 1, "sizes": sizes, "compress": compress, "layers_together": layers_together, "force": True}
    process = multiprocessing.get_context("spawn").Process(target=write_random_paxml, args=[folder], kwargs=options)
    process.start()
    process.join()
    return folder


def compare(folder: Path, source: Path, dtype: str, packed: str, repeat: int) -> None:
    """All sides in turn, and their best."""
    runs: dict[str, list[Measured]] = {"convert": [], "cp -r": [], "whole arrays": []}
    for _ in range(repeat):
        shutil.rmtree(folder / "out", ignore_errors=True)
        runs["convert"].append(convert(source, folder / "out", dtype))
        shutil.rmtree(folder / "copy", ignore_errors=True)
        runs["cp -r"].append(run("cp", "-r", folder / "out", folder / "copy"))
        shutil.rmtree(folder / "whole", ignore_errors=True)
        runs["whole arrays"].append(run(sys.executable, "-m", "tests.speed.convert", folder, "--whole-arrays", dtype))
    size = sum(path.stat().st_size for path in (folder / "out").rglob("*"))
    best = {name: min(measured, key=lambda one: one.wall_s) for name, measured in runs.items()}
    copy = best["cp -r"].wall_s
    print(f"{dtype} from chunks that are {packed}: {size / 1e9:.2f} GB written, synced; best of {repeat}")
    for name, one in best.items():
        times = f"{one.wall_s:6.2f} s = {one.wall_s / copy:.2f} times cp -r, {one.cpu_s:6.2f} s of CPU"
        print(f"  {name:13} {times}, {one.peak_mib:6.0f} MiB at most", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--whole-arrays", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if chosen.whole_arrays:
        whole_arrays(folder / "paxml", folder / "whole", chosen.whole_arrays)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for compress in (True, False):
        source = make(folder / "paxml", chosen.layers, chosen.hidden, compress=compress)
        os.sync()
        for dtype in ("fp32", "bf16"):
            compare(folder, source, dtype, "gzip" if compress else "not compressed", chosen.repeat)
    for name in ("out", "copy", "whole"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for layers in (1, 4):
        deep = make(folder / f"paxml_{layers}", layers, chosen.hidden, layers_together=False)
        peak = convert(deep, folder / "out", "bf16", "--memory-limit", "1GiB").peak_mib
        print(f"{layers} layers, --memory-limit 1GiB: {peak:.0f} MiB at most")


if __name__ == "__main__":
    main()
