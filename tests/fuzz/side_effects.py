"""Notice what reading a hostile file does apart from reading it.

An action, whose modules have been imported before, runs in a forked process, watched by an audit hook of Python and
within bounds of time and memory. Reported are: a file read, written, made or removed elsewhere; a process started; a
name looked up or a connection made; code executed, a module or a class of a pickle loaded; an attribute of any class
changed; an exception other than a reader's refusal.
"""

import encodings.cp437  # zipfile decodes old names by it, and pickletools texts by the next
import encodings.raw_unicode_escape  # noqa: F401
import json
import multiprocessing
import os
import resource
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foundation.errors import CheckFailed, InputError
from tests.support import REPOSITORY

SECONDS, CPU_SECONDS = 60.0, 10
MEMORY_BYTES = 1 << 28
"""Memory that the process may take in addition to what it has at its start."""
READABLE = (*map(str, (REPOSITORY, sys.prefix, sys.base_prefix, sysconfig.get_paths()["stdlib"])), "/proc/self", "/usr")
"""Folders that any code reads, for its modules, libraries and tables."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("remove", "rename", "rmdir", "mkdir", "link", "symlink", "chmod", "chown", "truncate", "utime", "setxattr")
PROCESSES = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "os.kill",
)
CODE = ("exec", "compile", "marshal.loads", "pickle.find_class", "import", "code.__new__", "function.__new__")
NETWORK = ("socket.", "http.", "urllib.", "ftplib.", "smtplib.", "ssl.")
MOST_EFFECTS = 8
EXPECTED = (InputError, CheckFailed, ValueError, OSError)
"""Exceptions of a reader that refuses a file."""


def side_effects(action: Callable[[], object], folder: Path, cases: int = 1) -> list[str]:
    """Run ``action`` in a forked process and describe its side effects; ``folder`` is the only one that it may read.

    ``cases``: number of files that it reads, each of which may take a few seconds on a slow machine.
    """
    seconds, cpu_seconds = SECONDS + 2 * (cases - 1), CPU_SECONDS + cases - 1
    parent_end, child_end = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_watch, args=(action, folder, child_end, cpu_seconds))
    process.start()
    child_end.close()
    try:
        answered = parent_end.poll(seconds)
        effects: list[str] = json.loads(parent_end.recv_bytes()) if answered else [f"busy for {seconds:.0f} s"]
    except EOFError:
        effects = [f"the process died, or took {cpu_seconds} s of processor time"]
    if process.is_alive():
        process.join(2)
        process.kill()
    process.join()
    return effects


def _watch(action: Callable[[], object], folder: Path, pipe: Any, cpu_seconds: int) -> None:
    effects: list[str] = []
    readable = (str(folder), os.path.realpath(folder), *READABLE)
    classes = _classes()
    _limit(cpu_seconds)
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and (effect := _effect(event, arguments, readable)) and effect not in effects:
            effects.append(effect)

    sys.addaudithook(hook)
    try:
        action()
    except EXPECTED:
        pass
    except BaseException as error:
        effects.append(f"raised {type(error).__name__}: {str(error)[:200]}")
    watching = False
    effects += _changed(classes, _classes())
    pipe.send_bytes(json.dumps(effects[:MOST_EFFECTS]).encode())
    os._exit(0)


def _effect(event: str, arguments: Sequence[Any], readable: Sequence[str]) -> str | None:
    """Describe an event of Python's audit; None if it is no side effect."""
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int):
            return None
        if isinstance(flags, int) and flags & WRITES:
            return f"wrote {_text(path)}"
        return None if _is_below(path, readable) else f"read {_text(path)}"
    if event in ("os.listdir", "os.scandir", "glob.glob"):
        return None if arguments[0] is None or _is_below(arguments[0], readable) else f"listed {_text(arguments[0])}"
    if event.removeprefix("os.") in CHANGES or event.startswith(("shutil.", "tempfile.")):
        return f"changed the disk: {event} {_text(arguments[0])}"
    if event.startswith(PROCESSES):
        return f"started a process: {event}"
    if event.startswith(NETWORK):
        return f"used the network: {event}"
    if event in CODE:
        return f"loaded code: {event} {_text(arguments[0])}"
    return None


def _is_below(path: Any, folders: Sequence[str]) -> bool:
    real = os.path.realpath(os.fsdecode(path))
    return any(real == folder or real.startswith(f"{folder}/") for folder in folders)


def _text(value: Any) -> str:
    return repr(value)[:80] if isinstance(value, str | bytes | Path | int) else type(value).__name__


Classes = dict[type, dict[str, int]]
"""Identity of each attribute's value, by class."""


def _classes() -> Classes:
    """Return the attributes of all classes of this process."""
    classes: Classes = {}
    waiting: list[type] = [object]
    while waiting:
        kind = waiting.pop()
        if kind not in classes:
            classes[kind] = {name: id(value) for name, value in vars(kind).items()}
            waiting += type.__subclasses__(kind)
    return classes


def _changed(before: Classes, after: Classes) -> list[str]:
    return [
        f"changed the attribute {name} of {kind.__module__}.{kind.__qualname__}"
        for kind, attributes in after.items()
        for name in attributes.keys() | before.get(kind, attributes).keys()
        if before.get(kind, attributes).get(name) != attributes.get(name) and name not in ("__annotations__", "__doc__")
    ]


def _limit(cpu_seconds: int) -> None:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    most = (int(status["VmData"].split()[0]) << 10) + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
