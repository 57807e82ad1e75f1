"""Find how much memory a process may take: the machine's, or less if its control group is limited."""

import os
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
SHARE = 0.9
"""Share of the memory for blocks. The rest is for Python, its packages and chunks that are being written."""


def memory_problem(blocks: int) -> str | None:
    """Return an error text if ``blocks`` bytes are more than this process may take; None if they fit.

    The kernel would kill such a process without a message.
    """
    there = memory_of_this_process()
    if blocks <= SHARE * there:
        return None
    return (
        f"the blocks take {blocks:,} bytes, and this process may take {there:,} in all; pass a smaller --memory-limit, "
        f"such as {int(there * SHARE / 2) >> 20}MiB"
    )


def memory_of_this_process() -> int:
    """Return the bytes of the machine, or the lower limit of the process's control group or one above it."""
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
