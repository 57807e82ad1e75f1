"""The shares of several tasks, for example in an array of Slurm jobs: ``--shard K/N``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from foundation.errors import InputError

Item = TypeVar("Item")
MOST_TASKS = 100_000


@dataclass(frozen=True)
class Shard:
    """The share number ``index``, from 0 on, of ``count`` shares."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def of(self, items: Sequence[Item]) -> list[Item]:
        """Return this share of ``items``: every ``count``-th item."""
        return list(items[self.index :: self.count])


def parse_shard(text: str) -> Shard:
    """Parse "K/N", with tasks counted from 0 to N-1 or from 1 to N, as in arrays of jobs.

    N/N is the same share as 0/N, so that either count covers everything. Raises InputError for any other text.
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 0 < int(match[2]) <= MOST_TASKS or int(match[1]) > int(match[2]):
        raise InputError(f"--shard {text[:40]}: expected K/N with K from 0 to N-1 or from 1 to N, such as 3/16")
    return Shard(int(match[1]) % int(match[2]), int(match[2]))
