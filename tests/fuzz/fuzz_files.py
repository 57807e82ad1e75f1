"""Hostile files, read as the commands read them; anything apart from reading is a side effect, and wrong.

python -m tests.fuzz.fuzz_files [--cases 1000] [--seed 0] [--kind PATTERN]

A case is repeated by its seed and its kind. Exit status 1 if a case has a side effect (``side_effects``).
"""

import argparse
import contextlib
import io
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.checkpoint_files import open_checkpoint
from checkpoint_convert.formats.step_files import adam_step, common_files
from checksums.common_file import COMMON, is_only_spelled_otherwise
from tests.checkpoint_convert.checkpoints import write_dcp, write_safetensors
from tests.fuzz.hostile_archives import entries_of, hostile_archive, zip_of
from tests.fuzz.hostile_pickles import hostile_pickle
from tests.fuzz.side_effects import EXPECTED, side_effects
from tests.fuzz.user_files import HOSTILE_JSON

BATCH = 25
TENSORS = {"model/a": torch.arange(60.0).reshape(10, 6), "step": torch.tensor(4000)}


@dataclass(frozen=True)
class FileKind:
    """A kind of hostile file: how it is made, and how it is read."""

    write: Callable[[Path, random.Random], None]
    """Write it into a folder; a pickle may try to make the file ``outside`` in the folder above."""
    read: Callable[[Path], object]
    """Read it there; errors of the reader are expected."""


def read_checkpoint(folder: Path) -> None:
    """Read a distributed checkpoint as inspect and compare do."""
    checkpoint = open_checkpoint(folder)
    for array in checkpoint.arrays.values():
        array.read(whole_box(array.shape))
    checkpoint.steps()


def read_common(folder: Path) -> None:
    """Read common.pt as checksums and the exports do."""
    for bf16 in (False, True):
        is_only_spelled_otherwise(folder / COMMON, bf16=bf16)
    adam_step(folder)


def _saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def _write_metadata(folder: Path, draw: random.Random) -> None:
    write_dcp(folder, TENSORS)
    path = folder / ".metadata"
    path.write_bytes(hostile_pickle(path.read_bytes(), folder.parent / "outside", draw))


def _write_values(folder: Path, draw: random.Random) -> None:
    """A checkpoint whose file of values holds a hostile pickle or archive in place of the first tensor."""
    write_dcp(folder, TENSORS)
    (path,) = folder.glob("*.distcp")
    content = path.read_bytes()
    length = content.index(b"PK\5\6") + 22
    honest = content[:length]
    entries = entries_of(honest)
    with_pickle = {**entries, "data.pkl": hostile_pickle(entries["data.pkl"], folder.parent / "outside", draw)}
    hostile = zip_of(with_pickle) if draw.random() < 0.5 else hostile_archive(honest, draw)
    path.write_bytes(hostile[:length].ljust(length, b"\0") + content[length:])


def _write_common(folder: Path, draw: random.Random) -> None:
    folder.mkdir(exist_ok=True)
    honest = common_files("bf16")[COMMON]
    entries = entries_of(honest)
    with_pickle = {**entries, "data.pkl": hostile_pickle(entries["data.pkl"], folder.parent / "outside", draw)}
    (folder / COMMON).write_bytes(zip_of(with_pickle) if draw.random() < 0.5 else hostile_archive(honest, draw))


def _write_safetensors(folder: Path, draw: random.Random) -> None:
    """A file whose header has a hostile value somewhere, or is damaged."""
    path = folder / "model.safetensors"
    write_safetensors(path, TENSORS)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    fields = json.loads(content[8 : 8 + length])
    entry = fields[draw.choice(sorted(fields))]
    entry[draw.choice(sorted(entry))] = draw.choice((*HOSTILE_JSON, [1] * 20_000, [1 << 62, 4], "F8_E4M3"))
    header = json.dumps(fields).encode("utf-8", "surrogatepass") if draw.random() < 0.7 else content[8 : 8 + length]
    number = draw.choice((len(header), len(header) + 1, 0, 1 << 63)) if draw.random() < 0.3 else len(header)
    path.write_bytes(number.to_bytes(8, "little") + header + content[8 + length :])


KINDS: Mapping[str, FileKind] = {
    "metadata": FileKind(_write_metadata, read_checkpoint),
    "values": FileKind(_write_values, read_checkpoint),
    "common": FileKind(_write_common, read_common),
    "safetensors": FileKind(_write_safetensors, read_checkpoint),
}


def read_honest_files() -> None:
    """Read a good file of each kind, so that all modules are imported before a reading is watched."""
    with tempfile.TemporaryDirectory() as folder:
        write_dcp(Path(folder), TENSORS)
        read_checkpoint(Path(folder))
        (Path(folder) / COMMON).write_bytes(common_files("bf16")[COMMON])
        read_common(Path(folder))
        write_safetensors(Path(folder) / "a.safetensors", TENSORS)
        read_checkpoint(Path(folder) / "a.safetensors")


def try_cases(kind: str, seeds: Sequence[int], folder: Path) -> dict[int, list[str]]:
    """Make the files of ``seeds`` in an empty folder and read them; return the side effects by seed.

    All are read in one process; only if it had side effects, each is read in a process of its own.
    """
    checkpoints = {seed: folder / str(seed) / "hostile" for seed in seeds}
    for seed, checkpoint in checkpoints.items():
        checkpoint.mkdir(parents=True)
        KINDS[kind].write(checkpoint, random.Random(seed))

    def read_all() -> None:
        for checkpoint in checkpoints.values():
            with contextlib.suppress(*EXPECTED):
                KINDS[kind].read(checkpoint)

    if not side_effects(read_all, folder, len(seeds)):
        return {}
    effects = {seed: side_effects(partial(KINDS[kind].read, path), path) for seed, path in checkpoints.items()}
    return {seed: found for seed, found in effects.items() if found} or {
        seeds[0]: [f"only {len(seeds)} cases together"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="", help="only kinds in whose name this pattern is found")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if re.search(options.kind, kind)]
    broken, started = 0, time.monotonic()
    read_honest_files()
    for number, first in enumerate(range(options.seed, options.seed + options.cases, BATCH)):
        kind, seeds = kinds[number % len(kinds)], range(first, min(first + BATCH, options.seed + options.cases))
        with tempfile.TemporaryDirectory() as folder:
            for seed, effects in try_cases(kind, seeds, Path(folder)).items():
                broken += 1
                print(f"case {seed} of {kind}: {'; '.join(effects)}", flush=True)
    print(f"{options.cases:,} cases, {broken} with side effects, {time.monotonic() - started:,.0f} s")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
