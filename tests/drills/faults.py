"""Faults as data: what happens on which process, when.

A fault strikes at a *moment*: when a process enters a phase of the run (benchmark/run_record/phases.py), or when
the run calls one of the functions named in injector.py. Its step, process and delay may be drawn at random, by a seed.
"""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.file_names import checkpoint_path, checkpoints_folder

Rank = int | Literal["any", "all"]
TWO_PAGES = 8192


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong in a process."""

    act: str
    """What a process of the run does to itself: a name in acts.py."""
    at: str
    """A phase, "call:NAME" of a function in injector.py, or "outside" for a signal to a process of a real launch."""
    steps: tuple[int, int] = (9, 15)
    """First and last of the steps after which it may strike; -1 before the state is there."""
    rank: Rank = "any"
    attempt: int | None = 1
    """Which attempt, counted from 1; None: every one."""
    amount: float = 0.0
    """Of what the act is about: seconds, or times."""
    delay_s: float = 0.0
    """It strikes up to so long after the moment."""

    def drawn(self, random: Random, ranks: int) -> "Fault":
        """The fault with step, process and delay chosen."""
        step, delay_s = random.randint(*self.steps), round(self.delay_s * random.random(), 3)
        rank = random.randrange(ranks) if self.rank == "any" else self.rank
        return dataclasses.replace(self, steps=(step, step), rank=rank, delay_s=delay_s)

    def words(self) -> str:
        much = f" {self.amount:g}" if self.amount else ""
        when = f"after step {self.steps[0]} + {self.delay_s:g} s, attempt {self.attempt or 'any'}"
        return f"{self.act}{much} on rank {self.rank} at {self.at} {when}"


@dataclass(frozen=True)
class Damage:
    """Something that happens to files between two attempts."""

    kind: str
    """A name in DAMAGE."""
    before_attempt: int = 2

    def words(self) -> str:
        return f"{self.kind} before attempt {self.before_attempt}"


def words_for(faults: Sequence[Fault | Damage]) -> str:
    """The list of drawn faults, so that it can be read and repeated."""
    return "; ".join(fault.words() for fault in faults)


def _shard(run_dir: Path) -> Path:
    """The largest file of the newest checkpoint."""
    steps = newest_checkpoint(run_dir)
    assert steps is not None, f"{run_dir}: no checkpoint to damage"
    return max(checkpoint_path(run_dir, steps).iterdir(), key=lambda path: path.stat().st_size)


def flip_bit(path: Path) -> None:
    """In the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _spoil_tokens(data: Path) -> None:
    """A high bit of every token in two pages: ids beyond any small vocabulary; some sample of a short run has one."""
    with data.with_name(f"{data.name}.bin").open("r+b") as file:
        page = bytearray(file.read(TWO_PAGES))
        page[1::2] = bytes(byte ^ 0x40 for byte in page[1::2])
        file.seek(0)
        file.write(page)


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "flip newest": lambda run_dir, data: flip_bit(_shard(run_dir)),
    "cut newest": lambda run_dir, data: _cut(_shard(run_dir)),
    "delete newest": lambda run_dir, data: shutil.rmtree(_shard(run_dir).parent),
    "delete all": lambda run_dir, data: shutil.rmtree(checkpoints_folder(run_dir), ignore_errors=True),
    "flip data": lambda run_dir, data: _spoil_tokens(data),
    "remove exit": lambda run_dir, data: (run_dir / "exit").unlink(missing_ok=True),
}
"""What is done to a run's folder, or to one of its training sets, while no process of it runs."""
