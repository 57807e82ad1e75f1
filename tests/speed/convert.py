"""How fast a checkpoint is converted, against copying its result and against loading whole arrays, in one run.

python -m tests.speed.convert FOLDER [--layers 2] [--hidden 2048] [--repeat 5]

Makes random PAXML checkpoints of about 1.5 GB in FOLDER, with and without gzip. Each side is a fresh process, after
which what it wrote is on the disk; they take turns, and ratios are those of neighbours. A conversion also takes MD5
sums, so it is compared with copying its result, and with copying and md5sum of the copy, one after the other. "Whole
arrays", once, is what the reference's converter does: read an array, reorder it in memory, write it. Then the memory of
a checkpoint four times as deep, with chunks of the same size. Four minutes on a machine that does nothing else.
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
from statistics import median

import numpy as np

from checkpoint_convert.conversion.paxml_to_megatron import open_paxml
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.formats.array_table import ARRAYS, array_dtype, chunk_shape, groups
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.zarr_arrays import create_array

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Measured:
    wall_s: float
    cpu_s: float
    peak_mib: float


def whole_arrays(source: Path, output: Path, dtype: str) -> None:
    """The straightforward conversion, array by array."""
    checkpoint = open_paxml(LocalFiles(source))
    for group in groups(dtype):
        for array in ARRAYS:
            stored = checkpoint.array(group, array)
            values = stored.read(whole_box(stored.shape))
            shape = array.megatron_shape(checkpoint.sizes)
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
    """All sides in turn, and the medians of what they took in times of ``cp -r``."""
    out, copy = folder / "out", folder / "copy"
    converted, copied, summed, cpu_s = [], [], [], []
    for _ in range(repeat):
        shutil.rmtree(out, ignore_errors=True)
        ours = convert(source, out, dtype)
        shutil.rmtree(copy, ignore_errors=True)
        copying = run("cp", "-r", out, copy)
        summing = run("find", copy, "-type", "f", "-exec", "md5sum", "{}", "+")
        converted.append(ours.wall_s / copying.wall_s)
        summed.append(ours.wall_s / (copying.wall_s + summing.wall_s))
        copied.append(copying.wall_s)
        cpu_s.append(ours.cpu_s)
    shutil.rmtree(folder / "whole", ignore_errors=True)
    whole = run(sys.executable, "-m", "tests.speed.convert", folder, "--whole-arrays", dtype)
    size = sum(path.stat().st_size for path in out.rglob("*"))
    print(f"{dtype} from chunks that are {packed}: {size / 1e9:.2f} GB written, synced; medians of {repeat}")
    print(f"  convert: {spread(converted)} times cp -r, {spread(summed)} times cp -r and md5sum, ", end="")
    print(f"{spread(cpu_s)} s of CPU, {ours.peak_mib:.0f} MiB at most")
    print(f"  cp -r: {size / median(copied) / 1e6:.0f} MB/s", end="")
    print(f"; whole arrays {whole.wall_s / median(copied):.2f} times cp -r, ", end="")
    print(f"{whole.cpu_s:.2f} s of CPU, {whole.peak_mib:.0f} MiB at most", flush=True)


def spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
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
