"""Questions to the system that Linux answers, and other systems such as macOS answer otherwise or not at all."""

import ctypes
import os
import resource
import sys


def usable_cores() -> frozenset[int]:
    """Return the numbers of the cores that this process may use; all of the machine where the system does not say."""
    affinity = getattr(os, "sched_getaffinity", None)
    return frozenset(range(os.cpu_count() or 1)) if affinity is None else frozenset(affinity(0))


def count_cores() -> int:
    return len(usable_cores())


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def process_control(option: int, *values: int) -> bool:
    """Call Linux' prctl; return whether the system has it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return False
    prctl(option, *values)
    return True
