"""What a case may take: processor time, waiting and memory. Wall time says little where others use the cores too."""

import os
import resource
import time
from contextlib import suppress
from pathlib import Path

CPU_S = 10.0
"""Of a case's processes together."""
WAITING_S = 10.0
"""In which none of them computes, wants to or waits for a disk."""
LONGEST_S = 120.0
"""Whatever it does, on a machine that is busy with other things."""
MEMORY_BYTES = 1 << 30
"""Of each process, beside what it has at its start."""
BUSY = ("R", "D")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class OverLimit(Exception):
    """A case took more than it may."""


class CaseWatch:
    """Call it with the id of the case's process every now and then. Raises OverLimit."""

    def __init__(self) -> None:
        self._looked_at = time.monotonic()
        self._cpu_s = self._waited_s = 0.0

    def __call__(self, pid: int) -> None:
        now, processes = time.monotonic(), _tree(pid)
        used = sum(map(_cpu_s, processes))
        if used <= self._cpu_s and not any(_is_busy(process) for process in processes):
            self._waited_s += now - self._looked_at
        self._looked_at, self._cpu_s = now, max(used, self._cpu_s)
        if self._cpu_s > CPU_S:
            raise OverLimit(f"took more than {CPU_S:g} s of processor time")
        if self._waited_s > WAITING_S:
            raise OverLimit(f"waited for more than {WAITING_S:g} s")


def _tree(pid: int) -> list[int]:
    """A process and those that it and they have started."""
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _tree(int(child))
    return found


def _fields(stat: Path) -> list[str]:
    """Those after the name, which may hold anything; none where the process has ended."""
    with suppress(OSError):
        return stat.read_text(errors="replace").rpartition(")")[2].split()
    return []


def _cpu_s(pid: int) -> float:
    """Of a process and of those of its children that it has seen end."""
    return sum(map(int, _fields(Path(f"/proc/{pid}/stat"))[11:15])) / TICKS_PER_S


def _is_busy(pid: int) -> bool:
    with suppress(OSError):
        return any((_fields(task / "stat") or [""])[0] in BUSY for task in Path(f"/proc/{pid}/task").iterdir())
    return False


def limit_memory() -> None:
    """Of this process and those that it starts, and let none leave a core."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    most = (int(status["VmData"].split()[0]) << 10) + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
