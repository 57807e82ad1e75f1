"""Random commands of data_prep over random damage to their files: nothing may crash, hang, be made up or be lost.

python -m tests.speed.fuzz_data_prep [--cases 1000] [--seed 0]

Each case has a folder of the user's files, some of them damaged or not files at all, and a command with options of
which some are absurd. Broken is: a traceback, more than a line for an error, more than SECONDS, a file of the user's
that changed or is gone, a dataset other than a plain pipeline makes of the same files. A broken case is told with what
repeats it. Exit status 1 if there is one.
"""

import argparse
import gzip
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece
import zstandard

from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.token_files.indexed_dataset import IndexedDataset
from data_prep.tokenizing.tokenizer import train_tokenizer
from tests.forked import run_forked, run_module
from tests.support import REPOSITORY, write_dataset

SECONDS = 60.0
MEMORY_BYTES = 8 << 30
NUMBERS = [*"01289", "-1", "-7", "1e3", "nan", "inf", "1.5", "", "x", "0x10", str(10**11), str(1 << 63), str(10**30)]
ODD_NAMES = ["", "", "", "b c", "\u00e4", "back\\slash", "n\nl", "\udcfe"]
WORDS = ["", " ", "-", "--", "a\nb", "\udcff", "\\", "..", "~", "text", "%s", "a" * 300]


DAMAGE = ["cut", "flip", "zeros", "empty", "more", "head", "folder", "pipe", "loop", "gone", "twice"]


@dataclass(frozen=True)
class Found:
    """How a case ended."""

    kind: str
    status: int | None
    problem: str | None


class Folder:
    """The user's files of one case."""

    def __init__(self, path: Path, sources: Path, draw: random.Random) -> None:
        self.path, self._sources, self._draw = path, sources, draw
        self._taken = 0
        path.mkdir()

    def take(self, pattern: str, *, spoil: float = 0.4) -> Path:
        """A copy of one of the prepared files, perhaps damaged, perhaps under another name; of a dataset both."""
        chosen = self._draw.choice(sorted(self._sources.glob(pattern)))
        self._taken += 1
        name = f"{self._taken}{self._draw.choice(ODD_NAMES)}{chosen.name}"
        for source in [chosen, *([chosen.with_suffix(".bin")] if chosen.suffix == ".idx" else [])]:
            target = self.path / (name.removesuffix(chosen.suffix) + source.suffix)
            shutil.copyfile(source, target)
            if self._draw.random() < spoil:
                self._spoil(target)
        return self.path / name

    def _spoil(self, path: Path) -> None:
        content = path.read_bytes()
        place = self._draw.randrange(len(content))
        kind = self._draw.choice(
            ["cut", "flip", "zeros", "empty", "more", "head", "folder", "pipe", "loop", "gone", "twice"]
        )
        if kind == "cut":
            path.write_bytes(content[:place])
        elif kind == "flip":
            changed = bytearray(content)
            for _ in range(self._draw.randrange(1, 9)):
                changed[self._draw.randrange(len(content))] ^= 1 << self._draw.randrange(8)
            path.write_bytes(changed)
        elif kind == "zeros":
            path.write_bytes(content[:place] + bytes(len(content) - place))
        elif kind in ("empty", "more", "twice"):
            path.write_bytes({"empty": b"", "more": content + content[:place], "twice": content * 2}[kind])
        elif kind == "head":
            path.write_bytes(self._draw.randbytes(40) + content[40:])
        else:
            path.unlink()
            if kind == "folder":
                path.mkdir()
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "loop":
                path.symlink_to(path.name)

    def state(self) -> dict[str, str]:
        """What each thing is, and the digest of its content."""
        found = {}
        for path in sorted(self.path.rglob("*")):
            kind = "link" if path.is_symlink() else "file" if path.is_file() else "folder" if path.is_dir() else "other"
            found[str(path)] = kind + (hashlib.md5(path.read_bytes()).hexdigest() if kind == "file" else "")
        return found


def prepare(folder: Path) -> None:
    """Good files of every kind."""
    folder.mkdir()
    write_synthetic_corpus(folder / "corpus", seed=5, size=CorpusSize(2, 30, 10))
    shards = sorted((folder / "corpus" / "en").iterdir())
    train_tokenizer(shards, folder / "m.model", vocab_size=500)
    for number, shard in enumerate(shards):
        lines = gzip.decompress(shard.read_bytes())
        (folder / f"{number}.json").write_bytes(lines)
        (folder / f"{number}.json.gz").write_bytes(gzip.compress(lines[:999]) + gzip.compress(lines[999:]))
        (folder / f"{number}.jsonl.zst").write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(lines))
    write_dataset(folder / "a", [30, 11, 60, 1, 200], seed=1)
    write_dataset(folder / "b", [5] * 40, seed=2, vocab_size=70_000)


def maybe(draw: random.Random, option: str, values: list[str], share: float = 0.3) -> list[str]:
    return [option, draw.choice(values)] if draw.random() < share else []


def output_in(draw: random.Random, user: Folder, inputs: list[Path]) -> Path:
    """Mostly new; sometimes something of the user's, or beside or within it."""
    there = user.path.parent / "out"
    places = [there / "x"] * 6 + [
        user.path,
        user.path.parent,
        *inputs,
        inputs[0].with_suffix(""),
        Path("/proc/x"),
        Path(),
    ]
    return draw.choice(places)


def preprocess_case(draw: random.Random, user: Folder) -> tuple[list[str], Callable[[], str | None]]:
    inputs = [user.take("[01].json*") for _ in range(draw.randrange(1, 4))]
    model = user.take("m.model", spoil=0.1)
    prefix = output_in(draw, user, inputs)
    skip = draw.random() < 0.4
    words = ["preprocess", "--input", *map(str, inputs), "--tokenizer", str(model), "--output-prefix", str(prefix)]
    words += ["--workers", draw.choice(["1", "2", "3", *NUMBERS[:9]])] if draw.random() < 0.8 else []
    words += ["--on-bad-line", "skip"] if skip else []
    words += maybe(draw, "--shard", ["0/1", "0/2", "1/1", "3", "-1/2", "1/0", "0/" + "9" * 30], 0.1)
    words += maybe(draw, "--text-key", ["text", "url", *WORDS], 0.1)
    words += [flag for flag in ("--force", "--append-eod", "--json") if draw.random() < 0.2]

    def check() -> str | None:
        if "--shard" in words or "--text-key" in words or not prefix.with_name(prefix.name + ".manifest.json").exists():
            return None
        return wrong_dataset(prefix, inputs, model, skip=skip, append_eod="--append-eod" in words)

    return words, check


def wrong_dataset(prefix: Path, inputs: list[Path], model: Path, *, skip: bool, append_eod: bool) -> str | None:
    """How a dataset differs from what a plain pipeline makes of the same files."""
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())
    expected: list[list[int]] = []
    for path in inputs:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        elif path.suffix == ".zst":
            content = b"".join(
                zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).readall() for _ in "1"
            )
        for line in content.removesuffix(b"\n").split(b"\n") if content else []:
            try:
                text = json.loads(line)["text"]
                ids = tokenizer.encode(text.encode().decode()) if isinstance(text, str) else None
            except (ValueError, TypeError, KeyError, RecursionError):
                ids = None
            if ids is None and not skip:
                return f"published, though {path} has a bad line"
            if ids:
                expected.append([*ids, tokenizer.eos_id()] if append_eod else ids)
    dataset = IndexedDataset(prefix)
    found = [dataset.tokens(number, 0, int(size)).tolist() for number, size in enumerate(dataset.sizes)]
    return None if found == expected else f"{len(found)} documents, expected {len(expected)}, or other tokens"


def samples_case(draw: random.Random, user: Folder) -> tuple[list[str], Callable[[], str | None]]:
    first = user.take("[ab].idx", spoil=0.2)
    prefix = first.with_suffix("")
    path = draw.choice([[str(prefix)], [draw.choice(NUMBERS), str(prefix)], ["0.5", str(prefix), "0.5", str(prefix)]])
    output = output_in(draw, user, [first])
    words = ["samples", "--data-path", *path, "--output", str(output)]
    for option, usual in (("--seq-length", "8"), ("--num-samples", "9"), ("--seed", "1")):
        words += [option, draw.choice([usual] * 6 + NUMBERS)]
    words += maybe(draw, "--first", NUMBERS, 0.2) + maybe(draw, "--count", NUMBERS, 0.2)
    words += [flag for flag in ("--plus-one", "--documents", "--json") if draw.random() < 0.2]

    def check() -> str | None:
        rows = np.load(output) if output.is_file() and output.parent.name == "out" else np.zeros((0, 0), np.int64)
        sizes, tokens = (
            IndexedDataset(prefix).sizes,
            np.fromfile(first.with_suffix(".bin"), IndexedDataset(prefix).dtype),
        )
        known = set(tokens.tolist()) | ({-1} if "-1" in words else set())
        if rows.size and len(tokens) == sizes.sum() and not set(np.unique(rows).tolist()) <= known:
            return "samples hold tokens that the dataset does not"
        return None

    return words, check


def inspect_case(draw: random.Random, user: Folder) -> tuple[list[str], Callable[[], str | None]]:
    words = ["inspect", "--data-path", str(user.take("[ab].idx", spoil=0.5).with_suffix(""))]
    words += ["--against", str(user.take("[ab].idx").with_suffix(""))] if draw.random() < 0.3 else []
    words += ["--tokenizer", str(user.take("m.model"))] if draw.random() < 0.4 else []
    words += ["--json"] if draw.random() < 0.3 else []
    return words, lambda: None


def text_case(draw: random.Random, user: Folder) -> tuple[list[str], Callable[[], str | None]]:
    inputs = [user.take("[01].json*")]
    output = ["--output", str(output_in(draw, user, inputs))]
    kind = draw.choice(["train-tokenizer", "validation-subset", "synthetic-corpus"])
    if kind == "train-tokenizer":
        words = ["--input", str(inputs[0]), *output, "--vocab-size", draw.choice(["400"] * 3 + NUMBERS)]
        words += maybe(draw, "--documents", NUMBERS)
    elif kind == "validation-subset":
        words = ["--input", str(inputs[0]), *output, "--count", draw.choice(["4", *NUMBERS])]
        words += ["--hash-list", str(user.take("*"))] if draw.random() < 0.1 else []
    else:
        words = [*output, "--seed", draw.choice(["1", *NUMBERS]), "--size.shards", draw.choice(["1", "0", "-1", "x"])]
        words += ["--size.documents-per-shard", "2", "--size.validation-documents", draw.choice(["1", "0", "-3"])]
    words += [flag for flag in ("--force", "--json") if draw.random() < 0.3]
    return [kind, *words], lambda: None


CASES = [preprocess_case, preprocess_case, samples_case, inspect_case, text_case]


def _with_little_memory(arguments: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    run_module(arguments)


def try_case(seed: int, sources: Path, folder: Path) -> Found:
    """One case, in ``folder``, which is there for it alone."""
    draw = random.Random(seed)
    user = Folder(folder / "user", sources, draw)
    words, check = draw.choice(CASES)(draw, user)
    before = user.state()
    try:
        done = run_forked(_with_little_memory, ["data_prep", *words], folder=REPOSITORY, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Found(words[0], None, f"took more than {SECONDS:g} s")
    problem = _problem_with(done, before, user.state())
    if problem is None and done.returncode == 0:
        try:
            problem = check()
        except Exception as error:  # the plain pipeline, too, found the file damaged
            problem = f"published, though a plain pipeline fails: {type(error).__name__}: {error}"
    return Found(words[0], done.returncode, problem and f"{problem}\n  {words}\n  {done.stderr[-600:]}")


def _problem_with(
    done: "subprocess.CompletedProcess[str]", before: dict[str, str], after: dict[str, str]
) -> str | None:
    lost = [path for path, state in before.items() if after.get(path) != state]
    if lost:
        return f"the user's {lost[0]} is not what it was"
    if done.returncode not in (0, 1, 2):
        return f"exit status {done.returncode}"
    if "Traceback" in done.stderr + done.stdout:
        return "a traceback"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    if done.returncode and (len(errors) != 1 or not done.stderr.splitlines()[-1].startswith("error: ")):
        return "an error that is not one line"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    ends: Counter[tuple[str, int | None]] = Counter()
    broken = 0
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place, "sources"))
        for seed in range(chosen.seed, chosen.seed + chosen.cases):
            folder = Path(place, str(seed))
            folder.mkdir()
            found = try_case(seed, Path(place, "sources"), folder)
            shutil.rmtree(folder)
            ends[found.kind, found.status] += 1
            if found.problem is not None:
                broken += 1
                print(f"case {seed}: {found.problem}", flush=True)
    for (kind, status), count in sorted(ends.items(), key=str):
        print(f"{count:6,} {kind}: exit status {status}")
    print(f"{chosen.cases:,} cases, {broken} broken")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
