"""How fast `data_prep preprocess` is, against the straightforward pipeline, from a cold start, in one run.

python -m tests.speed.tokenise --input C4_FILES --tokenizer MODEL [--repeat 5]

The straightforward pipeline is what the reference's worker does, in one process: gzip, json and SentencePiece for each
document, and the ids to a file. All sides are fresh processes that start from nothing; they take turns, and ratios are
those of neighbours. The bytes of the results are compared. Two runs of one worker at the same time say what the machine
allows two workers: its cores share memory and clock. Each side is also run on one document: what that takes is its
start and end, and is left out of the second line of ratios. 50 MB take three minutes on a machine that does nothing
else.
"""

import argparse
import filecmp
import gzip
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import sentencepiece

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Measured:
    wall_s: float
    cpu_s: float
    peak_mib: float
    """Of the largest process."""


def straightforward(inputs: list[str], tokenizer: str, output: str) -> None:
    """One document after the other."""
    model = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
    with Path(output).open("wb") as file:
        for path in inputs:
            with gzip.open(path) as lines:
                for line in lines:
                    file.write(np.array(model.encode(json.loads(line)["text"]), np.uint16).tobytes())


def run(*commands: list[str]) -> Measured:
    """Run commands at the same time to their end, and nothing else."""
    started = time.perf_counter()
    processes = [
        subprocess.Popen([sys.executable, *command], cwd=REPOSITORY, stdout=subprocess.DEVNULL) for command in commands
    ]
    cpu_s = peak_mib = 0.0
    for process, command in zip(processes, commands, strict=True):
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"failed: {shlex.join(command)}")
        cpu_s += usage.ru_utime + usage.ru_stime
        peak_mib = max(peak_mib, usage.ru_maxrss / 1024)
    return Measured(time.perf_counter() - started, cpu_s, peak_mib)


def ratios(slow: list[Measured], fast: list[Measured], field: str, times: float = 1) -> str:
    """The median of neighbours' ratios, and the least and the greatest."""
    found = [times * getattr(a, field) / getattr(b, field) for a, b in zip(slow, fast, strict=True)]
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def without(all_of_it: list[Measured], start: list[Measured]) -> list[Measured]:
    """What is left of each run without the one on a single document, of which the median counts."""
    wall_s, cpu_s = (median(getattr(one, field) for one in start) for field in ("wall_s", "cpu_s"))
    return [Measured(one.wall_s - wall_s, one.cpu_s - cpu_s, one.peak_mib) for one in all_of_it]


def compared(plain: list[Measured], one: list[Measured], two: list[Measured]) -> str:
    """Return the ratios that docs/notes/data_speed.md states."""
    return (
        f"one worker against straightforward {ratios(plain, one, 'wall_s')} by the clock, "
        f"{ratios(plain, one, 'cpu_s')} by CPU time; "
        f"two workers against one {ratios(one, two, 'wall_s')} by the clock, "
        f"for {ratios(two, one, 'cpu_s')} times the CPU time"
    )


def plain_command(inputs: list[str], tokenizer: str, output: str) -> list[str]:
    common = ["--input", *inputs, "--tokenizer", tokenizer]
    return ["-m", "tests.speed.tokenise", *common, "--straightforward", output]


def our_command(inputs: list[str], tokenizer: str, output: str, workers: int) -> list[str]:
    common = ["--input", *inputs, "--tokenizer", tokenizer, "--output-prefix", output, "--workers", str(workers)]
    return ["-m", "data_prep", "preprocess", *common, "--force"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--straightforward", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.straightforward:
        straightforward(chosen.input, chosen.tokenizer, chosen.straightforward)
        return
    with tempfile.TemporaryDirectory() as folder:
        small = f"{folder}/one_document.json.gz"
        with gzip.open(chosen.input[0], "rb") as lines:
            Path(small).write_bytes(gzip.compress(lines.readline()))
        sides = {
            "straightforward": [plain_command(chosen.input, chosen.tokenizer, f"{folder}/plain.bin")],
            "twice 1 worker": [
                our_command(chosen.input, chosen.tokenizer, f"{folder}/{name}", 1) for name in ("ours", "again")
            ],
            "1 worker": [our_command(chosen.input, chosen.tokenizer, f"{folder}/ours", 1)],
            "2 workers": [our_command(chosen.input, chosen.tokenizer, f"{folder}/ours", 2)],
        }
        starts = {
            "straightforward": plain_command([small], chosen.tokenizer, f"{folder}/plain_small.bin"),
            "1 worker": our_command([small], chosen.tokenizer, f"{folder}/small", 1),
            # as many files as workers, for a file is tokenised by one worker
            "2 workers": our_command([small, small], chosen.tokenizer, f"{folder}/small", 2),
        }
        runs: dict[str, list[Measured]] = {name: [] for name in sides}
        start_runs: dict[str, list[Measured]] = {name: [] for name in starts}
        for _ in range(chosen.repeat):
            for name, commands in sides.items():
                runs[name].append(run(*commands))
            for name, command in starts.items():
                start_runs[name].append(run(command))
        tokens = Path(folder, "ours.bin").stat().st_size // 2
        same = filecmp.cmp(f"{folder}/ours.bin", f"{folder}/plain.bin", shallow=False)
    size = 0
    words: set[str] = set()  # counted last: a process starts with its parent's peak
    for path in chosen.input:
        with gzip.open(path) as lines:
            for line in lines:
                text = json.loads(line)["text"]
                size += len(text.encode())
                words.update(text.split())
    print(f"{size / 1e6:.1f} MB of text, {len(words):,} distinct words; medians of {chosen.repeat}")
    for name, measured in runs.items():
        wall_s, cpu_s = (
            median(getattr(one, field) for one in measured) / len(sides[name]) for field in ("wall_s", "cpu_s")
        )
        rates = f"{size / wall_s / 1e6:6.1f} MB/s {tokens / wall_s / 1e6:6.2f} Mtokens/s"
        per_core = f"{size / cpu_s / 1e6:6.1f} MB per core second"
        peak_mib = max(one.peak_mib for one in measured)
        print(f"{name:16} {wall_s:7.2f} s {rates} {per_core} {peak_mib:5.0f} MiB at most")
    for name, measured in start_runs.items():
        wall_s, cpu_s = (median(getattr(one, field) for one in measured) for field in ("wall_s", "cpu_s"))
        print(f"start and end of {name:16} {wall_s:5.2f} s, {cpu_s:5.2f} s of CPU")
    plain, twice, one, two = runs.values()
    print(f"cold: {compared(plain, one, two)}")
    rest = (without(runs[name], start_runs[name]) for name in starts)
    print(f"without start and end: {compared(*rest)}")
    print(f"twice one worker, one after the other against at the same time: {ratios(one, twice, 'wall_s', 2)}")
    print(f"bytes of the results: {'the same' if same else 'DIFFERENT'}")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
