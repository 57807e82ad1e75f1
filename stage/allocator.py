"""How glibc's allocator treats freed memory; elsewhere these calls do nothing."""

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST_MMAP_THRESHOLD = 32 << 20
"""glibc takes no more."""


def give_freed_memory_back() -> None:
    """Return every large array to the system when it is freed: the heaps would keep what several threads have freed, up
    to half as much again as is in use."""
    _mallopt(M_MMAP_THRESHOLD, 1 << 20)


def keep_freed_memory() -> None:
    """Keep what is freed for the next arrays, for work that makes many of a few megabytes and frees them: fresh pages,
    which the system has to clear, cost more time than such an array's computation."""
    _mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
    _mallopt(M_TRIM_THRESHOLD, 256 << 20)
    _mallopt(M_TOP_PAD, 32 << 20)


def _mallopt(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)
