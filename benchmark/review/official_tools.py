"""The official checkers, each in a fresh process, believed only when their text proves that they ran and passed.

Four of them exit with 0 whatever they find; the package checker prints SUCCESS over a benchmark it skipped; some crash
on a word or a character (docs/facts/mlperf_review.md 1.4, 4.10, 4.14). So every tool has a proof here: what must stand
in its output, as often as there are files, and what must not.
"""

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Literal

from benchmark.results.printable import shortened

CPU_S_PER_LOG = 10
"""A published log takes a second of a processor at most, one with 25,000 evaluations two to three."""
WALL_S, WALL_S_PER_LOG = 60.0, 30.0
MOST_MEMORY = 1 << 30
"""Bytes of its own; libraries read from files are not counted."""
MOST_OUTPUT = 64 << 20
"""Bytes of a file that it writes, its output included; a failing checker prints the whole log."""
MOST_COMPLAINTS = 12
MOST_WIDTH = 300
CRASH = "Traceback (most recent call last)"
NOISE = re.compile(
    r"^(INFO|\*\*|current (context|line)|-{5,}|\s|[{}\]]|File |Traceback)|UserWarning|warnings\.warn|Detailed log"
)

OfficialScores = Mapping[str, Mapping[str, float | str]]
"""The summarizer's columns by system."""
Outcome = Literal["passed", "excused", "failed", "did not run"]
"""excused: it failed on what the round accepts, such as the one run of three that may fail."""


@dataclass(frozen=True)
class ToolVerdict:
    """What one official tool said of one thing."""

    tool: str
    subject: str
    """Path of what was checked."""
    outcome: Outcome
    complaints: tuple[str, ...]
    """The tool's own lines, or why it does not count as run."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    scores: OfficialScores = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.outcome in ("passed", "excused")


@dataclass(frozen=True)
class Task:
    """A tool to run on something, and what proves that it checked everything and found it good."""

    tool: str
    subject: str
    arguments: Sequence[str]
    must: Mapping[str, int]
    """Patterns, and how often each must be in its output."""
    must_not: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Paths of copies, and those they stand for."""
    notes: tuple[str, ...] = ()
    files: int = 1
    """How many logs it reads."""
    scores: Callable[[], tuple[OfficialScores, list[str]]] | None = None
    """Reads the scores that it wrote, and tells what is wrong with them."""


def run_task(task: Task) -> ToolVerdict:
    """Run a tool in a process of its own, in an empty folder, within limits, and judge it by its proof."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="review-") as folder, tempfile.TemporaryFile() as output:
        status = _run(task, folder, output)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    seconds = time.perf_counter() - started
    scores, wrong = task.scores() if task.scores is not None else ({}, [])
    complaints = _complaints(text)
    outcome: Outcome = "failed"
    if status is None:
        complaints, outcome = [f"no answer within {_wall_s(task):g} s: it was ended", *complaints[-1:]], "did not run"
    elif status < 0:
        why = f"it was ended by signal {-status}, as for more than {CPU_S_PER_LOG * task.files} s of a processor"
        complaints, outcome = [why, *complaints[-1:]], "did not run"
    elif CRASH in text:
        last = next(line for line in reversed(text.splitlines()) if line.strip())
        complaints, outcome = [f"the tool crashed: {shortened(last, MOST_WIDTH)}", *complaints], "did not run"
    elif status != 0:
        complaints = complaints or [f"exit status {status}"]
    else:
        wrong = _unproven(task, text) or wrong
        complaints, outcome = ([*complaints, *wrong], "failed") if wrong else ([], "passed")
    for scratch in sorted(task.renamed, key=len, reverse=True):
        complaints = [line.replace(scratch, task.renamed[scratch]) for line in complaints]
    return ToolVerdict(task.tool, task.subject, outcome, tuple(complaints), task.notes, seconds, scores)


def _wall_s(task: Task) -> float:
    return WALL_S + WALL_S_PER_LOG * task.files


def _run(task: Task, folder: str, output: IO[bytes]) -> int | None:
    """Return its exit status, a signal as a negative number; None where it did not answer in time. With -P nothing in
    the working folder is ever imported; by one thread each, since several tools run at once."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(
        [sys.executable, "-P", *task.arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
        stderr=subprocess.STDOUT, env={**environment, **single, "PYTHONUTF8": "1"}, start_new_session=True,
    )  # fmt: skip
    limits = (
        (resource.RLIMIT_CPU, CPU_S_PER_LOG * task.files),
        (resource.RLIMIT_DATA, MOST_MEMORY),
        (resource.RLIMIT_FSIZE, MOST_OUTPUT),
    )
    try:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            for limit, most in limits:
                resource.prlimit(process.pid, limit, (most, most))
        return process.wait(_wall_s(task))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # nobody of its group is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _unproven(task: Task, text: str) -> list[str]:
    """Return what the output lacks, or has and should not have."""
    counts = {pattern: len(re.findall(pattern, text)) for pattern in task.must}
    lacking = [
        f"the output has {counts[pattern]} of {times} lines with {_plain(pattern)!r}"
        for pattern, times in task.must.items()
        if counts[pattern] != times
    ]
    return lacking + [f"the output has {_plain(one)!r}" for one in task.must_not if re.search(one, text)]


def _complaints(text: str) -> list[str]:
    """Return the lines that say something: no progress, no dumps of the checker's state."""
    told = (line for line in text.splitlines() if line.strip() and not NOISE.match(line))
    lines = list(dict.fromkeys(shortened(line, MOST_WIDTH) for line in told))
    left_out = len(lines) - MOST_COMPLAINTS
    return lines[:MOST_COMPLAINTS] + ([f"… and {left_out} more lines"] if left_out > 0 else [])


def _plain(pattern: str) -> str:
    return pattern.replace("\\", "").removeprefix("(?m)^")
