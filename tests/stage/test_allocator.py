"""Memory that is freed: kept for the next array, or given back."""

import multiprocessing
import resource
from collections.abc import Callable
from typing import Any

import numpy as np

from stage.allocator import give_freed_memory_back, keep_freed_memory

FORK = multiprocessing.get_context("fork")
ARRAYS, ARRAY_BYTES = 8, 3 << 20
"""Less than NumPy asks large pages for."""


def _count_fresh_pages(choose: Callable[[], None], found: Any) -> None:
    choose()
    pages = 0
    for counts in (False, False, True):  # the first times, the heap may have to grow
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        arrays = [np.empty(ARRAY_BYTES, np.uint8) for _ in range(ARRAYS)]
        for array in arrays:
            array.fill(1)
        pages += counts * (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        del arrays, array  # all of them, so that the heap has much that it could give back
    found.put(pages)


def share_of_fresh_pages(choose: Callable[[], None]) -> float:
    """Of the memory of several arrays, made after as many were freed: how much the system had to clear again."""
    found = FORK.Queue()
    process = FORK.Process(target=_count_fresh_pages, args=(choose, found))
    process.start()
    pages: int = found.get(timeout=60)
    process.join()
    return pages * resource.getpagesize() / (ARRAYS * ARRAY_BYTES)


def test_freed_memory_is_kept_or_given_back() -> None:
    assert share_of_fresh_pages(keep_freed_memory) < 0.1
    assert share_of_fresh_pages(give_freed_memory_back) > 0.2  # some pages may be large ones
