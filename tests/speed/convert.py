"""How fast a checkpoint is converted, against copying its result and taking its MD5 sums, in one run.

python -m tests.speed.convert FOLDER [--layers 2] [--hidden 2048] [--repeat 5]

Makes random PAXML checkpoints of about 1.5 GB in FOLDER, with and without gzip. Each side is a fresh process, after
which what it wrote is on the disk; they take turns, and ratios are those of neighbours. A conversion also takes MD5
sums, so it is compared with copying its result, and with copying and md5sum of the copy, one after the other.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
IMPORTS = (
    "from pathlib import Path; from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml"
)


class Measured(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_mib: float


def run(*command: object) -> Measured:
    """Run a command to its end, alone, and bring what it wrote to the disk."""
    started = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {command}")
    os.sync()
    return Measured(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compare(folder: Path, source: Path, dtype: str, repeat: int) -> str:
    """All sides in turn, and the medians of what they took in times of ``cp -r``."""
    out, copy = folder / "out", folder / "copy"
    convert = [sys.executable, "-m", "checkpoint_convert", "paxml-to-megatron", "--input", source, "--output", out]
    copied, summed, cpu_s, peak_mib = [], [], [], []
    for _ in range(repeat):
        for made in (out, copy):
            shutil.rmtree(made, ignore_errors=True)
        ours, copying = run(*convert, "--dtype", dtype, "--force"), run("cp", "-r", out, copy)
        summing = run("find", copy, "-type", "f", "-exec", "md5sum", "{}", "+")
        copied.append(ours.wall_s / copying.wall_s)
        summed.append(ours.wall_s / (copying.wall_s + summing.wall_s))
        cpu_s.append(ours.cpu_s)
        peak_mib.append(ours.peak_mib)
    size = sum(path.stat().st_size for path in out.rglob("*")) / 1e9
    return (
        f"{dtype}: {size:.2f} GB written, synced; medians of {repeat}: {spread(copied)} times cp -r, {spread(summed)} "
        f"times cp -r and md5sum, {spread(cpu_s)} s of CPU, {max(peak_mib):.0f} MiB at most"
    )


def spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    chosen = parser.parse_args()
    folder: Path = chosen.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    hidden = chosen.hidden
    for compress in (True, False):
        sizes = f"ModelSizes(layers={chosen.layers}, hidden={hidden}, heads={hidden // 128}, vocab={4 * hidden})"
        made = f"write_random_paxml(Path({str(folder / 'paxml')!r}), seed=1, sizes={sizes}, {compress=}, force=True)"
        run(sys.executable, "-c", f"{IMPORTS}; {made}")
        print("chunks in gzip" if compress else "chunks that are not compressed")
        for dtype in ("fp32", "bf16"):
            print(f"  {compare(folder, folder / 'paxml', dtype, chosen.repeat)}", flush=True)


if __name__ == "__main__":
    main()
