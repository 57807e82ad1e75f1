"""The memory that the processes of a job share with the fuzz: disk_faults.c, which is preloaded into them, reads it."""

import ctypes
import errno
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.drills.fuzz.drawn_faults import ANY_ROLE, ROLES, DiskFault, JobFault, Moment, ProcessFault

SOURCE = Path(__file__).with_name("disk_faults.c")
CONTROL = "FUZZ_CONTROL"
"""Variable with the path of the shared memory."""
READS, WRITES = 1, 2
CALLS = {"reads": READS, "writes": WRITES, "all": READS | WRITES}
NUMBERS = {**{role: number for number, role in enumerate(ROLES)}, ANY_ROLE: len(ROLES)}
MOST_FAULTS = 4


class _Fault(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("roles", "calls", "error", "signal", "window_ns", "role", "number", "began_ns")
    ]


class _Control(ctypes.Structure):
    _fields_ = [
        ("below", ctypes.c_char * 4096),
        ("calls", ctypes.c_int64 * (len(ROLES) + 1)),
        ("faults", _Fault * MOST_FAULTS),
    ]


def build_library(folder: Path) -> Path:
    """Compile the library into ``folder``."""
    library = folder / "disk_faults.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True, capture_output=True)
    return library


class SharedControl:
    """The faults of a job that strike within its processes, and the number of their calls below LOG_DIR."""

    def __init__(self, path: Path, log_dir: Path, faults: Sequence[JobFault]) -> None:
        self.path = path
        path.write_bytes(bytes(ctypes.sizeof(_Control)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._control = _Control.from_buffer(self._memory)
        self._control.below = os.fsencode(log_dir)
        for number, fault in enumerate(faults):
            self._fill(self._control.faults[number], fault)

    def _fill(self, memory: _Fault, fault: JobFault) -> None:
        moment = fault.moment
        if isinstance(fault, DiskFault):
            memory.roles = sum(1 << NUMBERS[role] for role in fault.roles)
            memory.calls = CALLS[fault.calls]
            memory.error = 0 if fault.error == "wait" else getattr(errno, fault.error)
            memory.window_ns = int(1e9 * fault.seconds)
        elif isinstance(fault, ProcessFault):
            memory.signal = signal.SIGKILL if fault.act == "kill" else signal.SIGSTOP
        if moment.kind == "calls" and not (isinstance(fault, ProcessFault) and moment.role != fault.role):
            memory.role, memory.number = NUMBERS[moment.role], int(moment.number)

    def began_s(self, number: int) -> float | None:
        """Return when the fault of this number began, by time.monotonic; None before it."""
        began_ns = self._control.faults[number].began_ns
        return began_ns / 1e9 if began_ns else None

    def begin(self, number: int) -> None:
        """Begin the fault of this number now."""
        self._control.faults[number].began_ns = self._control.faults[number].began_ns or time.monotonic_ns()

    def end(self, number: int) -> None:
        """End the fault of this number."""
        self._control.faults[number].window_ns = 0

    def has_come(self, moment: Moment) -> bool:
        """Return whether the role has made so many calls."""
        return int(self._control.calls[NUMBERS[moment.role]]) >= moment.number

    def calls(self) -> dict[str, int]:
        """Return the calls by path below LOG_DIR so far, by role."""
        return {role: int(self._control.calls[number]) for role, number in NUMBERS.items()}


def attach_rank(control: str, rank: int) -> None:
    """Have the preloaded library of this process, which was forked, take the faults of a rank."""
    ctypes.CDLL(None).attach(os.fsencode(control), NUMBERS[f"rank {rank}"])
