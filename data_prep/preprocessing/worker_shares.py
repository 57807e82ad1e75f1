"""How many workers tokenise each file: one each where there are enough files, several where there are not."""

import heapq
from collections.abc import Sequence

MOST_TO_A_FILE = 20
"""Workers that one process can read, decompress and hash for: that takes a twentieth of the time of tokenising."""
MANY_FILES_PER_WORKER = 20
"""So many files end at about the same time whatever is done, unless one of them is far larger than the others."""
STRIPE_BYTES = 500_000
"""Of a compressed file: what a worker tokenises in the time in which a process for another stripe is forked and ended.
Measured: 32 files of 480 kB took 0.11 s more each where two shared them, at 9 MB a second."""


def workers_per_file(sizes: Sequence[float], workers: int) -> list[int]:
    """For files of ``sizes`` bytes, worked on in this order: numbers of workers with which all end soonest."""
    if not sizes:
        return []
    most = min(workers, MOST_TO_A_FILE)
    if len(sizes) > MANY_FILES_PER_WORKER * workers:
        candidates = [1, *([most] if most > 1 else [])]
    else:
        candidates = list(range(1, most + 1))
    plans = [_of_largest(sizes, count, most) for count in candidates]
    return min(plans, key=lambda plan: (time_of(sizes, plan, workers), sum(plan)))


def _of_largest(sizes: Sequence[float], count: int, most: int) -> list[int]:
    """``count`` workers for the largest file, and for others in proportion."""
    largest = max(sizes) or 1
    return [min(most, max(1, round(count * size / largest))) for size in sizes]


def time_of(sizes: Sequence[float], shares: Sequence[int], workers: int) -> float:
    """When the last file is done, in units of the time in which one worker does a byte."""
    ends: list[tuple[float, int]] = []  # when workers become free, and how many
    free, now = workers, 0.0
    for size, share in zip(sizes, shares, strict=True):
        while free < share:
            now, freed = heapq.heappop(ends)
            free += freed
        forked = STRIPE_BYTES * share if share > 1 else 0
        heapq.heappush(ends, (now + forked + size / share, share))
        free -= share
    return max((end for end, _ in ends), default=0.0)
