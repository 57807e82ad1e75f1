"""The identity of a process that alone writes events and all else of a run: others on its machine see whether it ended.

Only Linux gives it. Elsewhere, and from another boot or another namespace of process numbers, nobody can tell.
"""

from __future__ import annotations

import os
from pathlib import Path


def this_boot() -> str:
    """Return the system's identity of the time from one start of this machine to the next; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_identity() -> str:
    """Return boot, namespace, number and start of this process; empty if the system does not say."""
    machine, start = _process_space(), _start_of(os.getpid())
    return f"{machine} {os.getpid()} {start}" if machine and start else ""


def has_ended(identity: str) -> bool:
    """Return whether the process has ended for certain, to the last of its threads."""
    *machine, number, start = ["", "", *identity.split(" ")][-4:]
    if not machine[0] or " ".join(machine) != _process_space() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)  # /proc may hide the processes of other people
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return _start_of(int(number)) != start


def _process_space() -> str:
    """Return this machine's boot and this process's namespace of process numbers; empty if the system has none."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - Python 3.8 has no Path.readlink
    except OSError:
        return ""
    boot = this_boot()
    return f"{boot} {namespace}" if boot else ""


def _start_of(process: int) -> str:
    """Return when a process began, in ticks since the boot; empty if it does not run, even though its parent has not
    asked for its end."""
    folder = Path(f"/proc/{process}")
    try:
        state, *numbers = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        threads = sum(1 for _ in (folder / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" and threads <= 1 else numbers[18]
