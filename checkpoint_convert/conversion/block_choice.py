"""How large the blocks of an array are and how many are converted at once: both out of one memory, chosen together.

Many small blocks keep many workers busy, but read input chunks several times; few large ones read each once. More than
once is only read where the memory leaves no choice; otherwise decides what a worker and a disk do, about.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checkpoint_convert.conversion.blocks import Cut, Side, cut
from checkpoint_convert.conversion.chunk_writer import PAGE, workspace_bytes
from stage.errors import InputError

COMFORTABLE_ITEMS = 1 << 22
"""Blocks are not made larger than 16 MB without need."""
WORKER_BYTES_PER_S = 0.25e9
"""What one worker reads and writes: assumed; tests/speed/convert.py measures it on a machine."""
DISK_BYTES_PER_S = 4e9
"""Beyond this more workers are taken to be of no use: assumed."""
ITEM = 4
ONCE = 1.05
"""Reading one chunk in twenty twice still counts as reading the input once."""


@dataclass(frozen=True)
class BlockChoice:
    """The blocks of one array, and how many are in memory at the same time."""

    cut: Cut
    at_once: int

    @property
    def decoding_bytes(self) -> int:
        """What reading a block takes besides: a chunk as it was packed and as it is."""
        return 2 * ITEM * math.prod(self.cut.source.chunks)

    @property
    def workspace_bytes(self) -> int:
        return workspace_bytes(self.cut.peak_items)

    @property
    def memory_bytes(self) -> int:
        return self.at_once * (self.workspace_bytes + self.decoding_bytes)


def choose_blocks(
    memory_limit: int, workers: int, sizes: Mapping[str, int], source: Side, target: Side, output_itemsizes: int = ITEM
) -> BlockChoice:
    """The choice that takes the least time within ``memory_limit`` bytes by at most ``workers`` workers.

    ``output_itemsizes``: bytes that are written of a value. Raises InputError where not even one block of the smallest
    fits.
    """
    smallest = cut(sizes, source, target, most_items=0, comfortable_items=0)
    found = [
        choice
        for at_once in _numbers(workers)
        if (choice := _within(memory_limit, at_once, smallest, sizes, source, target)) is not None
    ]
    if not found:
        least = BlockChoice(smallest, 1)
        raise InputError(
            f"--memory-limit is too small: one block takes {least.workspace_bytes:,} bytes and reading its chunks "
            f"{least.decoding_bytes:,}; pass {limit_text(least.memory_bytes)} or more"
        )
    items = math.prod(sizes[axis] for axis in target.axes)
    return min(
        found, key=lambda choice: (choice.cut.passes > ONCE, _seconds(choice, items, output_itemsizes), -choice.at_once)
    )


def bytes_to_read_once(sizes: Mapping[str, int], source: Side, target: Side) -> int:
    """The least memory in which one block at a time reads no chunk twice."""
    whole = cut(sizes, source, target, most_items=1 << 62, comfortable_items=0)
    return BlockChoice(whole, 1).memory_bytes


def _numbers(workers: int) -> Iterator[int]:
    """Some numbers from ``workers`` down to 1, each a fifth smaller than the one before."""
    while workers > 1:
        yield workers
        workers = min(workers - 1, workers * 4 // 5)
    yield 1


def _within(
    memory_limit: int, at_once: int, smallest: Cut, sizes: Mapping[str, int], source: Side, target: Side
) -> BlockChoice | None:
    least = BlockChoice(smallest, at_once)
    if least.memory_bytes > memory_limit:
        return None
    for_block = memory_limit // at_once - least.decoding_bytes - workspace_bytes(smallest.peak_items[1:])
    most_items = for_block // PAGE * PAGE // ITEM
    chosen = cut(sizes, source, target, most_items=most_items, comfortable_items=COMFORTABLE_ITEMS)
    return BlockChoice(chosen, min(at_once, sum(1 for _ in chosen.blocks())))


def _seconds(choice: BlockChoice, items: int, output_itemsizes: int) -> float:
    moved = items * (ITEM * choice.cut.passes + output_itemsizes)
    return moved / min(choice.at_once * WORKER_BYTES_PER_S, DISK_BYTES_PER_S)


def limit_text(size: int) -> str:
    """For ``--memory-limit``."""
    return f"{math.ceil(size / (1 << 20)):,}MiB".replace(",", "")
