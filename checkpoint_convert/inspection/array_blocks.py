"""Cut arrays of any size into blocks, which several threads work on within bounded memory."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from checkpoint_convert.formats.boxes import Box, divided, whole_box
from checkpoint_convert.formats.stored_array import StoredArray, Values

Result = TypeVar("Result")

BLOCK_BYTES = 16 << 20
MOST_MEMORY = 8 << 30
COPIES = 3
"""Memory for a block, in blocks: its decoded chunks, the block itself, and values computed from it."""
SEGMENT = 1 << 20
"""Values that are converted to float64 at the same time."""


def blocks(array: StoredArray, *, in_order: bool = False) -> Iterator[Box]:
    """Cut an array into boxes of at most BLOCK_BYTES, or of one chunk if only whole chunks can be read.

    ``in_order``: the boxes, one after the other, must be the array's values in C order.
    """
    limit = max(1, BLOCK_BYTES // array.dtype.itemsize)
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
        fitting = min(limit // math.prod(extent[axis + 1 :]), array.shape[axis])
        chunk = array.chunks[axis]
        extent[axis] = max(1, fitting // chunk * chunk if chunk < fitting < array.shape[axis] else fitting)
        if extent[axis] < array.shape[axis]:
            break
    return extent


def results_in_order(
    work: Callable[[Box], Result], boxes: Iterator[Box], workers: int, *arrays: StoredArray
) -> Iterator[Result]:
    """Yield ``work`` of every box, in the boxes' order.

    It is done by as many threads as memory allows for blocks of all ``arrays``, at most ``workers``; one more result
    may wait to be taken.
    """
    chunks = sum(0 if array.in_part else math.prod(array.chunks) * array.dtype.itemsize for array in arrays)
    threads = max(1, min(workers, MOST_MEMORY // (COPIES * max(BLOCK_BYTES * len(arrays), chunks)) - 1))
    running: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for box in boxes:
                running.append(pool.submit(work, box))
                if len(running) > threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def segments(values: Values) -> Iterator[Values]:
    """Yield the values of a block, flat, in segments."""
    flat = values.reshape(-1)
    for start in range(0, len(flat), SEGMENT):
        yield flat[start : start + SEGMENT]
