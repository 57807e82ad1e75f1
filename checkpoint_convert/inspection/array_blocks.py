"""Arrays of any size cut into blocks, which several threads work on within the memory that they may take."""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from checkpoint_convert.formats.boxes import Box, divided, whole_box
from checkpoint_convert.formats.stored_array import StoredArray
from stage.sizes import require_workers

Result = TypeVar("Result")

BLOCK_BYTES = 16 << 20
COPIES = 3
"""Memory that a block takes, in blocks: its decoded chunks, itself, and values computed from it."""


@dataclass(frozen=True)
class Threads:
    """Bounds on the blocks that are worked on at the same time."""

    workers: int = len(os.sched_getaffinity(0))
    memory_bytes: int = 8 << 30

    def __post_init__(self) -> None:
        """Raises InputError for numbers that cannot be."""
        require_workers(self.workers)

    def at_once(self, block_bytes: int) -> int:
        """Return as many as memory holds, at least one; the results of one more wait to be taken."""
        return max(1, min(self.workers, self.memory_bytes // (COPIES * block_bytes) - 1))


def blocks(array: StoredArray, limit_bytes: int, *, in_order: bool = False) -> Iterator[Box]:
    """Cut an array into boxes of at most ``limit_bytes``, or of one chunk where only whole chunks can be read.

    ``in_order``: boxes that, one behind the other, are the array's values in C order.
    """
    limit = max(1, limit_bytes // array.dtype.itemsize)
    extent = [max(1, min(chunk, size)) for chunk, size in zip(array.chunks, array.shape, strict=True)]
    if in_order or (array.in_part and math.prod(extent) > limit):
        extent = _rows(array, limit)
    else:
        for axis in reversed(range(len(extent))):
            while extent[axis] < array.shape[axis] and 2 * math.prod(extent) <= limit:
                extent[axis] = min(2 * extent[axis], array.shape[axis])
    return divided(whole_box(array.shape), extent)


def _rows(array: StoredArray, limit: int) -> list[int]:
    """Return an extent of at most ``limit`` items: one along the first axes, some along the next, all of the rest."""
    extent = [1] * len(array.shape)
    for axis in reversed(range(len(extent))):
        inner = math.prod(extent[axis + 1 :])
        fitting = min(limit // inner, array.shape[axis])
        chunk = array.chunks[axis]
        extent[axis] = max(1, fitting // chunk * chunk if chunk < fitting < array.shape[axis] else fitting)
        if extent[axis] < array.shape[axis]:
            break
    return extent


def block_bytes(array: StoredArray) -> int:
    """Return the bytes of the largest block that ``blocks`` makes of an array."""
    return max(BLOCK_BYTES, 0 if array.in_part else math.prod(array.chunks) * array.dtype.itemsize)


def results_in_order(work: Callable[[Box], Result], boxes: Iterable[Box], threads: int) -> Iterator[Result]:
    """Yield ``work`` of every box, in the boxes' order, done by so many threads."""
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[Result]] = deque()
        try:
            for box in boxes:
                running.append(pool.submit(work, box))
                if len(running) > threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()
