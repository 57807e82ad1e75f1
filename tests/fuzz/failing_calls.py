"""System calls that fail, or during which a file changes: ``failing_calls.c``, preloaded into the fork server.

What Python calls goes through it, and what TensorStore, PyTorch and SentencePiece call as well. Counted are calls on
files below one folder only, so that a random number hits the command's own.
"""

import ctypes
import errno
import json
import os
import random
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.forked import run_module

SOURCE = Path(__file__).with_name("failing_calls.c")
KINDS = (
    *("open", "read", "write", "sync", "rename", "mkdir", "remove", "stat", "list", "lock", "close", "truncate"),
    *("map", "link", "clock"),
)
ERRORS = (
    *("ENOSPC", "EIO", "ENOSYS", "EINVAL", "EMFILE", "EDQUOT", "EACCES", "EINTR", "ESTALE", "ENOMEM", "EXDEV", "EBUSY"),
    *("EROFS", "EPERM", "ETIMEDOUT", "ENOTCONN", "EAGAIN"),
)
ACTIONS = {
    name: -number
    for number, name in enumerate(("kill", "vanish", "empty", "halve", "spoil", "grow", "short", "ahead", "back"), 1)
}
"""As ``failing_calls.c`` numbers them."""
CHANGES = ("vanish", "empty", "halve", "spoil", "grow")
CPU_S = 10
"""Processor time that a process may take."""
MEMORY_BYTES = 1 << 30
"""Memory that a process may take, beside what it has at its start."""


@dataclass(frozen=True)
class FailingCall:
    """What happens at call number ``number`` of a kind."""

    kind: str
    number: int
    what: str
    """An error's name, or one of ACTIONS."""
    victim: Path
    """The file that a change changes."""

    def words(self) -> list[str]:
        return [self.kind, str(self.number), self.what, str(self.victim)]


def preload(folder: Path) -> None:
    """Compile the library into ``folder``, and have the processes that are started from now on load it."""
    library = folder / "failing_calls.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True, capture_output=True)
    os.environ["LD_PRELOAD"] = str(library)


def limit_process() -> None:
    """Limit this process and those that it starts, and let none leave a core."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    data = (int(status["VmData"].split()[0]) << 10) + MEMORY_BYTES
    for limit, most in ((resource.RLIMIT_DATA, data), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, CPU_S)):
        resource.setrlimit(limit, (most, most))


def run_with_failing_call(arguments: list[str]) -> None:
    """``python -m`` of the words after the first six: the folder, the file that gets the counts of all calls, or an
    empty word, and the failing call."""
    below, counts, kind, number, what, victim, *words = arguments
    limit_process()
    library = ctypes.CDLL(None)
    action = ACTIONS.get(what) or getattr(errno, what)
    at = ctypes.c_long(int(number))
    armed = library.arm_calls(os.fsencode(below), kind.encode(), at, action, os.fsencode(victim))
    if armed < 0:
        raise ValueError(f"{kind}: no such kind of call")
    try:
        run_module(words)
    finally:
        if counts:
            library.calls_seen.restype = ctypes.c_long
            Path(counts).write_text(json.dumps({kind: library.calls_seen(kind.encode()) for kind in KINDS}))


def failing_call_at_random(draw: random.Random, counts: dict[str, int], victims: list[Path]) -> FailingCall:
    """One of the calls that were counted; reads and writes no more often than the rare kinds."""
    kind = draw.choice([kind for kind, count in counts.items() if count])
    if kind == "clock":
        return FailingCall(kind, draw.randint(1, counts[kind]), draw.choice(["ahead", "back"]), draw.choice(victims))
    what = draw.choice([*ERRORS, "kill", "kill", *CHANGES, *(["short"] * 3 if kind in ("read", "write") else [])])
    return FailingCall(kind, draw.randint(1, counts[kind]), what, draw.choice(victims))
