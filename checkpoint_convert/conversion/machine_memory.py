"""How much memory a process may take: that of the machine, or less where its control group is limited."""

import os
from pathlib import Path

from stage.errors import InputError

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
SHARE = 0.9
"""The rest is for Python, its packages and chunks that are being written."""


def require_memory(blocks: int) -> None:
    """Raise InputError where the blocks of a conversion, in bytes, need more memory than there is: the kernel would
    kill the process without a word."""
    if problem := memory_problem(blocks):
        raise InputError(problem)


def memory_problem(blocks: int) -> str | None:
    """Return in words that ``blocks`` bytes are more than this process may take; None where they are not."""
    there = memory_of_this_process()
    if blocks <= SHARE * there:
        return None
    return (
        f"the blocks take {blocks:,} bytes, and this process may take {there:,} in all; pass a smaller --memory-limit, "
        f"such as {int(there * SHARE / 2) >> 20}MiB"
    )


def memory_of_this_process() -> int:
    """Return the bytes that the machine has, or that the process's control group, or one above it, allows."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for line in _read(OWN_CGROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            root, name = CGROUPS, "memory.max"
        elif controllers == "memory":
            root, name = CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = root / path.lstrip("/")
        limits = [_read(place / name).strip() for place in (folder, *folder.parents) if place.is_relative_to(root)]
        found += [int(limit) for limit in limits if limit.isdecimal()]
    return min(found)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # another system, or a container that hides it
        return ""
