"""How much memory a process may take: that of the machine, or less where its control group is limited."""

import os
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
SHARE = 0.9
"""The rest is for Python, its packages and chunks that are being written."""


def memory_problem(blocks: int) -> str | None:
    """Return in words that ``blocks`` bytes are more than this process may take, so that the kernel would kill it
    without a word; None where they are not."""
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
    with suppress(OSError):  # another system, or a container that hides it
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":  # version 2
                root, name = CGROUPS, "memory.max"
            elif controllers == "memory":
                root, name = CGROUPS / "memory", "memory.limit_in_bytes"
            else:
                continue
            folder = root / path.lstrip("/")
            for place in (folder, *folder.parents[: len(folder.parts) - len(root.parts)]):
                with suppress(OSError, ValueError):  # "max"
                    found.append(int((place / name).read_text()))
    return min(found)
