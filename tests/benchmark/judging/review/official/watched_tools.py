"""An oracle for hostile inputs: it notices a file that an official tool opens outside its copies, a process that it
starts, and a name that it looks up. The sandbox can be switched off, so that the copies alone must hold."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark.judging.review.official import tool_process, tool_sandbox, tool_server

KEPT_OPEN = 300
"""Descriptor of the oracle's file: the tools close those below 256."""
NOTICED = ("os.", "subprocess.", "socket.", "pty.", "ctypes.", "shutil.", "tempfile.", "urllib.")
OF_PATHS = ("open", "os.listdir", "os.scandir", "os.walk", "os.remove", "os.chdir", "os.mkdir", "shutil.rmtree")
"""Events that are noticed only for paths outside the copies."""
HARMLESS = ("os.putenv", "os.unsetenv")
ORDINARY = ("/dev/null", "/dev/urandom", "/usr/share/zoneinfo", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system")


def watch(log: str, scratch: str, code: list[str], sandbox: bool) -> None:
    """Write to ``log`` every noticed event of the children of this process, from the moment when each is closed."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), KEPT_OPEN)
    close, server, allowed, closed = tool_sandbox.enter, os.getpid(), (scratch, *code, *ORDINARY), []

    def enter(*arguments: Any) -> None:
        if sandbox or sys.argv[0] == tool_server.PROBE:
            close(*arguments)
        closed.append(os.getpid())

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if not closed or os.getpid() == server or sys.argv[0] == tool_server.PROBE or event in HARMLESS:
            return
        if event in OF_PATHS:
            path = arguments[0] or "."
            if isinstance(path, int) or os.path.realpath(str(path)).startswith(allowed):
                return
        elif not event.startswith(NOTICED):
            return
        os.write(KEPT_OPEN, json.dumps([event, repr(arguments)[:300]]).encode() + b"\n")

    setattr(tool_sandbox, "enter", enter)  # noqa: B010
    sys.addaudithook(hook)


@contextlib.contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, log: Path, sandbox: bool) -> Iterator[list[tuple[str, str]]]:
    """Give the events that are noticed meanwhile; without ``sandbox`` the tools' processes are not closed."""
    packages = [folder for folder in sys.path if folder.endswith("site-packages")]  # of another environment, too
    allowed = [sys.prefix, sys.base_prefix, *packages, str(tool_process.ROOT / "benchmark" / "judging")]
    start = (
        "import json, sys; root, extra, scratch, *_ = json.loads(sys.argv[1]); sys.path.insert(0, root); "
        f"sys.path += extra; from {__name__} import watch; watch({str(log)!r}, scratch, {allowed!r}, {sandbox}); "
    )
    events: list[tuple[str, str]] = []
    with monkeypatch.context() as patched:
        patched.setattr(tool_process, "START", start + tool_process.START)
        yield events
    if log.exists():
        events += [(event, arguments) for event, arguments in map(json.loads, log.read_text().splitlines())]
