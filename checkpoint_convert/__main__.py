"""Convert the benchmark's checkpoint."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from checkpoint_convert.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.random_paxml import ModelSizes, write_random_paxml
from stage.cli import main
from stage.errors import InputError

UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_bytes(text: str) -> int:
    """'8GiB' -> 8589934592. Raises InputError for anything else."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in UNITS:
        raise InputError(f"--memory-limit {text!r}: expected a size such as 8GiB or 500MB")
    return int(float(match[1]) * UNITS[match[2].upper()])


@dataclass(frozen=True)
class PaxmlToMegatron:
    """Convert a PAXML checkpoint to the Megatron zarr layout.

    Example: python -m checkpoint_convert paxml-to-megatron --input checkpoint_00004000 --output ckpt4000_bf16
    --dtype bf16 --memory-limit 64GiB
    """

    input: Path
    """Folder with one zarr array per parameter and moment."""
    output: Path
    """Folder to write. A list of MD5 sums and a manifest are written beside it."""
    dtype: Literal["fp32", "bf16"]
    """bf16 adds BF16 weights and keeps the FP32 ones as master weights; the moments are FP32 in both."""
    workers: int = len(os.sched_getaffinity(0))
    """Blocks converted at the same time."""
    memory_limit: str = "8GiB"
    """Bound on the blocks in memory."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        written = paxml_to_megatron(
            self.input,
            self.output,
            dtype=self.dtype,
            workers=self.workers,
            memory_limit=parse_bytes(self.memory_limit),
            force=self.force,
        )
        if written is None:
            print(f"{self.output}: already made from this checkpoint")
        else:
            print(f"{self.output}: {written:,} bytes; MD5 sums in {self.output}.md5")


@dataclass(frozen=True)
class RandomPaxml:
    """Write a random PAXML checkpoint of a small model, for rehearsals and tests.

    Example: python -m checkpoint_convert random-paxml --output paxml --seed 1 --layers 4 --hidden 128 --heads 4
    --vocab 1024
    """

    output: Path
    """Folder to write."""
    seed: int
    """Same seed and sizes, same bytes."""
    sizes: tyro.conf.OmitArgPrefixes[ModelSizes]
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        made = write_random_paxml(self.output, seed=self.seed, sizes=self.sizes, force=self.force)
        print(f"{self.output}: {self.sizes.layers} layers" if made else f"{self.output}: already made")


if __name__ == "__main__":
    main("checkpoint_convert", __doc__, {"paxml-to-megatron": PaxmlToMegatron, "random-paxml": RandomPaxml})
