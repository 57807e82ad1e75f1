"""How fast `data_prep preprocess` is, against the straightforward pipeline, from a cold start, in one run.

python -m tests.speed.tokenise --input C4_FILES --tokenizer MODEL [--repeat 3]

The straightforward pipeline is what the reference's worker does, in one process: gzip, json and SentencePiece for each
document, and the ids to a file. All sides are fresh processes that start from nothing; they take turns, and ratios are
those of neighbours. The bytes of the results are compared. Two runs of one worker at the same time say what the machine
allows two workers: its cores share memory and clock.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--straightforward", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.straightforward:
        straightforward(chosen.input, chosen.tokenizer, chosen.straightforward)
        return
    with tempfile.TemporaryDirectory() as folder:
        common = ["--input", *chosen.input, "--tokenizer", chosen.tokenizer]
        preprocess = ["-m", "data_prep", "preprocess", *common, "--force", "--output-prefix"]
        ours = [*preprocess, f"{folder}/ours", "--workers"]
        sides = {
            "straightforward": [["-m", "tests.speed.tokenise", *common, "--straightforward", f"{folder}/plain.bin"]],
            "twice 1 worker": [[*ours, "1"], [*preprocess, f"{folder}/again", "--workers", "1"]],
            "1 worker": [[*ours, "1"]],
            "2 workers": [[*ours, "2"]],
        }
        runs: dict[str, list[Measured]] = {name: [] for name in sides}
        for _ in range(chosen.repeat):
            for name, commands in sides.items():
                runs[name].append(run(*commands))
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
    plain, twice, one, two = runs.values()
    print(f"one worker against straightforward: {ratios(plain, one, 'wall_s')} by the clock, ", end="")
    print(f"{ratios(plain, one, 'cpu_s')} by CPU time; two workers against one: {ratios(one, two, 'wall_s')}")
    print(f"twice one worker, one after the other against at the same time: {ratios(one, twice, 'wall_s', 2)}")
    print(f"bytes of the results: {'the same' if same else 'DIFFERENT'}")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
