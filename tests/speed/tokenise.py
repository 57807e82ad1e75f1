"""How fast `data_prep preprocess` is, against the straightforward pipeline, from a cold start, in one run.

python -m tests.speed.tokenise --input C4_FILES --tokenizer MODEL [--repeat 5]

The straightforward pipeline is what the reference's worker does, in one process: gzip, json and SentencePiece for each
document, and the ids to a file. All sides are fresh processes that start from nothing; they take turns, and ratios are
those of neighbours. The bytes of the results are compared. 50 MB take three minutes on a machine that does nothing
else.
"""

import argparse
import filecmp
import gzip
import json
import tempfile
from pathlib import Path
from statistics import median
from sys import executable

import numpy as np
import sentencepiece

from tests.speed.convert import Measured, run


def straightforward(inputs: list[str], tokenizer: str, output: str) -> None:
    """One document after the other."""
    model = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
    with Path(output).open("wb") as file:
        for path in inputs:
            with gzip.open(path) as lines:
                for line in lines:
                    file.write(np.array(model.encode(json.loads(line)["text"]), np.uint16).tobytes())


def ratios(slow: list[Measured], fast: list[Measured], field: str) -> str:
    """The median of neighbours' ratios, and the least and the greatest."""
    values = [getattr(a, field) / getattr(b, field) for a, b in zip(slow, fast, strict=True)]
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--straightforward", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.straightforward:
        straightforward(options.input, options.tokenizer, options.straightforward)
        return
    common = ["--input", *options.input, "--tokenizer", options.tokenizer]
    with tempfile.TemporaryDirectory() as folder:
        plain, ours = f"{folder}/plain.bin", f"{folder}/ours"
        preprocess = ["data_prep", "preprocess", *common, "--output-prefix", ours, "--force", "--workers"]
        sides = {
            "straightforward": ["tests.speed.tokenise", *common, "--straightforward", plain],
            "1 worker": [*preprocess, "1"],
            "2 workers": [*preprocess, "2"],
        }
        runs: dict[str, list[Measured]] = {name: [] for name in sides}
        for _ in range(options.repeat):
            for name, command in sides.items():
                runs[name].append(run(executable, "-m", *command))
        tokens = Path(folder, "ours.bin").stat().st_size // 2
        is_same = filecmp.cmp(f"{ours}.bin", plain, shallow=False)
    for name, measured in runs.items():
        wall_s, cpu_s = (median(getattr(run, field) for run in measured) for field in ("wall_s", "cpu_s"))
        peak_mib = max(run.peak_mib for run in measured)
        rate = f"{tokens / wall_s / 1e6:6.2f} Mtokens/s"
        print(f"{name:16} {wall_s:7.2f} s {rate} {cpu_s:7.2f} s of CPU {peak_mib:5.0f} MiB at most")
    slow, one_worker, two_workers = runs.values()
    by_clock, by_cpu = ratios(slow, one_worker, "wall_s"), ratios(slow, one_worker, "cpu_s")
    print(f"one worker against straightforward {by_clock} by the clock, {by_cpu} by CPU time")
    by_clock, by_cpu = ratios(one_worker, two_workers, "wall_s"), ratios(two_workers, one_worker, "cpu_s")
    print(f"two workers against one {by_clock} by the clock, for {by_cpu} times the CPU time")
    print(f"bytes of the results: {'the same' if is_same else 'DIFFERENT'}")
    raise SystemExit(0 if is_same else 1)


if __name__ == "__main__":
    main()
