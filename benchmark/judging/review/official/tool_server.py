"""Run official tools in processes of their own: this process imports a tool once, and starts a closed copy of itself
for each task.

It runs as ``python -I``, with the standard library and the official tools alone, reads tasks as lines of JSON from
standard input, and answers each with a line. When its input ends (the review has ended, or was killed), it kills what
still runs, removes the folder of all copies, and ends.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import runpy
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmark.judging.review.official import tool_sandbox

PROBE = "probe"
"""Name of the task that only says which doors of the sandbox are closed."""
LATE = "late"
"""Status of a tool that was killed, as its time was up."""
SCRIPT = ".py"
"""End of the name of a script; a tool has the name of a module otherwise."""


@dataclass(frozen=True)
class ServedTask:
    """One call of a tool."""

    number: int
    tool: str
    """Module or script to run, or :data:`PROBE`."""
    needs: str
    """Module that it imports: this process imports it once for all tasks."""
    arguments: tuple[str, ...]
    folder: str
    """Folder that the tool runs in and may write."""
    output: str
    """File for standard output and errors."""
    cpu_s: int
    wall_s: float
    memory: int
    file_size: int

    def as_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True)
class Child:
    """A running tool."""

    task: ServedTask
    started: float

    @property
    def deadline(self) -> float:
        return self.started + self.task.wall_s


def serve(scratch: str, readable: list[str], outside: str) -> None:
    """Answer the tasks of standard input; ``scratch`` holds all copies, and ``outside`` is a file for the probe."""
    children: dict[int, Child] = {}
    ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = b""
    try:
        while True:
            soonest = min((child.deadline for child in children.values()), default=None)
            pause = None if soonest is None else max(0.0, soonest - time.monotonic())
            ready, _, _ = select.select([0, ended], [], [], pause)
            if ended in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(ended, 4096)
            if 0 in ready:
                content = os.read(0, 1 << 16)
                if not content:
                    return
                *lines, waiting = (waiting + content).split(b"\n")
                for line in lines:
                    fields: dict[str, Any] = json.loads(line)
                    task = ServedTask(**{**fields, "arguments": tuple(fields["arguments"])})
                    children[_start(task, readable, outside)] = Child(task, time.monotonic())
            for process, child in list(children.items()):
                status = _status(process, time.monotonic() > child.deadline)
                if status is not None:
                    del children[process]
                    _answer(child, status)
    finally:
        for process in children:
            _kill(process)
        shutil.rmtree(scratch, ignore_errors=True)


def _answer(child: Child, status: int | str) -> None:
    seconds = time.monotonic() - child.started
    line = json.dumps({"number": child.task.number, "status": status, "seconds": seconds}) + "\n"
    os.write(1, line.encode())


def _status(process: int, late: bool) -> int | str | None:
    """Return how a child ended: its exit status, or its signal as a negative number; None while it runs. A late child
    is killed."""
    if late:
        _kill(process)
        os.waitpid(process, 0)
        return LATE
    child, status = os.waitpid(process, os.WNOHANG)
    if child == 0:
        return None
    _kill(process)  # processes that it left in its group
    return os.waitstatus_to_exitcode(status)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def _start(task: ServedTask, readable: list[str], outside: str) -> int:
    """Start a task in a child, and return the child's number."""
    with contextlib.suppress(ImportError):  # the child says it, by its traceback
        importlib.import_module(task.needs)
    gc.freeze()  # a child's search for garbage would copy all pages of what was imported
    server = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            tool_sandbox.end_with_parent(server)
            status = _run(task, readable, outside)
        except BaseException:
            status = 1
        finally:
            os._exit(status)
    with contextlib.suppress(PermissionError, ProcessLookupError):  # the child did it itself
        os.setpgid(child, child)
    return child


def _run(task: ServedTask, readable: list[str], outside: str) -> int:
    """Run a tool as ``python -m MODULE ARGUMENTS`` does, and return its exit status."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(task.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, 256)
    os.chdir(task.folder)
    limits = {
        resource.RLIMIT_CPU: task.cpu_s,
        resource.RLIMIT_DATA: task.memory,
        resource.RLIMIT_FSIZE: task.file_size,
        resource.RLIMIT_CORE: 0,
    }
    tool_sandbox.enter([task.folder], readable, limits)
    sys.argv = [task.tool, *task.arguments]
    with _flushed():
        try:
            if task.tool == PROBE:
                print(json.dumps(tool_sandbox.closed_doors(outside)))
            elif task.tool.endswith(SCRIPT):
                runpy.run_path(task.tool, run_name="__main__")
            else:
                runpy.run_module(task.tool, run_name="__main__", alter_sys=True)
        except SystemExit as ending:
            return _exit_status(ending.code)
        except BaseException:
            traceback.print_exc()
            return 1
        return 0


@contextlib.contextmanager
def _flushed() -> Iterator[None]:
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def _exit_status(code: object) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1
