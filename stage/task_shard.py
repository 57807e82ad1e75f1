"""One of several tasks that share a stage's work, as in an array of Slurm: ``--shard K/N``."""

import re
from dataclasses import dataclass

from stage.errors import InputError

MOST_TASKS = 100_000


@dataclass(frozen=True)
class TaskShard:
    """The share number ``index``, from 0 on, of ``count``."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str) -> TaskShard:
    """Read "K/N". Raises InputError for anything else."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not int(match[1]) < int(match[2]) <= MOST_TASKS:
        raise InputError(f"--shard {text[:40]}: expected K/N with K from 0 to N-1, such as 3/16")
    return TaskShard(int(match[1]), int(match[2]))
