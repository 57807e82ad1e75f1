"""Start the process in which official tools run, hand it tasks, and take their output.

Its environment holds no credentials, its home is the folder of the copies, and that folder goes when this program ends,
however it ends (tool_server.py).
"""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmark.judging.review.official import tool_server
from benchmark.judging.review.official.stored_runs import StoredRuns
from benchmark.judging.review.official.tool_server import LATE, PROBE, ServedTask
from foundation.plain_text import counted

ROOT = Path(__file__).parents[4]
"""Folder of this project's packages."""
LIBRARIES = ("mlperf_logging", "numpy", "pandas", "scipy", "yaml", "dateutil", "six")
"""Modules of the official tools, which may be installed in several folders."""
START = (
    "import json, sys; root, extra, *arguments = json.loads(sys.argv[1]); sys.path.insert(0, root); sys.path += extra; "
    f"from {tool_server.__name__} import serve; serve(*arguments)"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each tool gets one thread, since several tools run at once."""
HANDED_ON = ("LD_LIBRARY_PATH",)
"""Variables without which some installations of Python do not start."""
CPU_S_PER_LOG = 10
"""Processor seconds allowed per log: a published log takes at most one, a log with 25,000 evaluations two to three."""
WALL_S, WALL_S_PER_LOG = 60.0, 30.0
MOST_MEMORY = 1 << 30
"""Bytes of memory that a tool may take; libraries mapped from files do not count."""
MOST_OUTPUT = 64 << 20
"""Largest number of bytes that a tool may write to a file, its output included; a failing checker prints the whole
log."""
DOORS = {"files": "no files but copies of the logs", "network": "no network", "processes": "no other processes"}


@dataclass(frozen=True)
class ToolRun:
    """The end of a tool's process, and its output."""

    status: int | None
    """Exit status; a signal as a negative number; None if its time was up."""
    output: str
    seconds: float = 0.0


class ServerEndedError(RuntimeError):
    """The process that runs the tools has ended."""


class ToolProcess:
    """The process that runs the tools; it starts with the first task."""

    def __init__(self, scratch: Path, stored: StoredRuns) -> None:
        self.scratch, self.stored = scratch, stored
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._tasks = 0

    def run(self, tool: str, needs: str, arguments: Iterable[str], folder: Path, logs: int) -> ToolRun:
        """Run a tool in ``folder``, which it may write, within the limits for so many logs. Raises ServerEndedError."""
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            process = self._started()
            self._tasks += 1
            number, output = self._tasks, self.scratch / f"output_{self._tasks}"
            task = ServedTask(
                number, tool, needs, tuple(arguments), str(folder), str(output),
                CPU_S_PER_LOG * logs, wall_s(logs), MOST_MEMORY, MOST_OUTPUT,
            )  # fmt: skip
            self._answers[number] = answer
            assert process.stdin is not None
            try:
                process.stdin.write(task.as_line())
                process.stdin.flush()
            except (OSError, ValueError) as error:  # ValueError: end() has closed it
                raise ServerEndedError("the process of the official tools has ended") from error
        ending = answer.result()
        text = output.read_bytes().decode("utf-8", "replace") if output.exists() else ""
        output.unlink(missing_ok=True)
        status = None if ending["status"] == LATE else int(ending["status"])
        return ToolRun(status, text, ending["seconds"])

    @property
    def account(self) -> str:
        """Return in one line from which resources the tools were kept, and how many outcomes were stored ones."""
        count = self.stored.reused
        reused = f"{counted(count, 'outcome')} taken from earlier reviews of the same bytes" if count else ""
        return "; ".join(filter(None, (self.sandbox if self._process is not None else "", reused)))

    @cached_property
    def sandbox(self) -> str:
        """Return the resources that the tools cannot reach, as a trial in their process has shown."""
        folder = self.scratch / PROBE
        folder.mkdir(exist_ok=True)
        try:
            closed = json.loads(self.run(PROBE, "json", (), folder, 1).output)
        except (ServerEndedError, ValueError):
            closed = {}
        words = [words for door, words in DOORS.items() if closed.get(door)]
        opened = [door for door in DOORS if not closed.get(door)]
        missing = f"; this system cannot close: {', '.join(opened)}" if opened else ""
        limits = f"{CPU_S_PER_LOG} s of a processor per log, {MOST_MEMORY >> 30} GiB"
        return f"{', '.join([*words, 'no variables of yours', limits])}{missing}"

    def end(self) -> None:
        """End the process; it removes the folder of the copies."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            outside = self.scratch / "outside"
            outside.write_text("")
            specs = (importlib.util.find_spec(name) for name in LIBRARIES)
            extra = list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin))
            readable = [str(ROOT / "benchmark" / "judging"), *extra, sys.prefix, sys.base_prefix]
            start = [str(ROOT), extra, str(self.scratch), readable, str(outside)]
            handed_on = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", "-c", START, json.dumps(start)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.scratch,
                env={**handed_on, **ONE_THREAD, "HOME": str(self.scratch), "TMPDIR": str(self.scratch)},
                start_new_session=True,
            )  # fmt: skip
            threading.Thread(target=self._read_answers, args=(self._process,), daemon=True).start()
        return self._process

    def _read_answers(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # closed by end()
            for line in process.stdout:
                answer = json.loads(line)
                with self._lock:
                    future = self._answers.pop(answer["number"])
                future.set_result(answer)
        with self._lock:
            pending, self._answers = list(self._answers.values()), {}
        for future in pending:
            future.set_exception(ServerEndedError("the process of the official tools has ended"))


def wall_s(logs: int) -> float:
    """Return the seconds by the clock that a tool may take for so many logs."""
    return WALL_S + WALL_S_PER_LOG * logs


@contextlib.contextmanager
def tool_process(store: Path | None = None) -> Iterator[ToolProcess]:
    """Give the process that runs the official tools, and a folder for their copies, which goes with it. Keep runs in
    ``store``, if one is given."""
    process = ToolProcess(Path(tempfile.mkdtemp(prefix="review-")), StoredRuns(store))
    try:
        yield process
    finally:
        process.stored.sweep()
        process.end()
