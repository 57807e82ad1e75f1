"""Which process something belongs to, told apart across machines, containers and restarts, and whether it has ended."""

import functools
import hashlib
import itertools
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STARTED_FIELD = 22
"""Of /proc/PID/stat (proc(5)): ticks from the machine's start to the process's."""
ENDED = ("Z", "X")
"""States in /proc/PID/stat: a zombie, a process that is being removed."""
_numbers = itertools.count()


@dataclass(frozen=True)
class ProcessIdentity:
    """One process."""

    host: str
    boot: str
    """Of the machine since it was last started."""
    pid_namespace: str
    """Containers number their processes each for itself."""
    pid: int
    started: int
    """Tells a process from a later one with the same number."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def machine(self) -> tuple[str, str]:
        return self.host, self.boot

    def short(self) -> str:
        """Letters and digits for the name of a file: ``a8 hex digits-PID``."""
        place = "\n".join((self.host, self.boot, self.pid_namespace))
        return f"{hashlib.md5(place.encode(), usedforsecurity=False).hexdigest()[:8]}-{self.pid}"

    def has_ended(self) -> bool | None:
        """None where that cannot be seen from here: on another machine, in another container."""
        me = this_process()
        if (self.machine, self.pid_namespace) != (me.machine, me.pid_namespace):
            return None
        started = _started(self.pid)
        if started is None and is_running(self.pid):  # another user's, whom /proc does not show (hidepid)
            return None
        return started != self.started


def this_process() -> ProcessIdentity:
    return _identity_of(os.getpid())


def identity_from(fields: Any) -> ProcessIdentity:
    """What ``asdict`` made of one. Raises ValueError for anything else."""
    try:
        found = ProcessIdentity(**fields)
    except TypeError as error:
        raise ValueError(str(error)) from error
    expected = {name: type(value) for name, value in asdict(this_process()).items()}
    if {name: type(value) for name, value in asdict(found).items()} != expected:
        raise ValueError("fields of other types")
    return found


def next_own_name() -> str:
    """A part of a file name that no other process has, nor this one twice."""
    return f"{this_process().short()}-{next(_numbers)}"


@functools.cache
def _identity_of(pid: int) -> ProcessIdentity:
    return ProcessIdentity(socket.gethostname(), this_boot(), _pid_namespace(), pid, _started(pid) or 0)


def this_boot() -> str:
    """Of this machine, from one start of it to the next; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """On this machine, in this container. A process that has ended and is not waited for by its parent is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    try:
        return _stat(pid)[0] not in ENDED
    except OSError:
        return True


def _started(pid: int) -> int | None:
    """None where there is no such process, it has ended and only its parent has not yet noticed, or it is hidden."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return None if fields[0] in ENDED else int(fields[STARTED_FIELD - 3])


def _stat(pid: int) -> list[str]:
    """From the state on, the third field. Raises OSError where /proc has no such process."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()  # the name before it may hold anything
