"""Run each official checker in a fresh process, and believe it only if its output proves that it ran and passed.

Four of them exit with 0 whatever they find; the package checker prints SUCCESS over a benchmark it skipped; some crash
on a word or a character (docs/facts/mlperf_review.md 1.4, 4.10, 4.14). So every tool has a proof here: patterns that
its output must contain, as often as there are files, and patterns that it must not contain.
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

from foundation.plain_text import shortened

CPU_S_PER_LOG = 10
"""Processor seconds allowed per log: a published log takes at most one, a log with 25,000 evaluations two to three."""
WALL_S, WALL_S_PER_LOG = 60.0, 30.0
MOST_MEMORY = 1 << 30
"""Bytes of memory that a tool may take; libraries mapped from files do not count."""
MOST_OUTPUT = 64 << 20
"""Largest number of bytes that a tool may write to a file, its output included; a failing checker prints the whole
log."""
MOST_COMPLAINTS = 12
MOST_WIDTH = 300
CRASH = "Traceback (most recent call last)"
NOISE = re.compile(
    r"^(INFO|\*\*|current (context|line)|-{5,}|\s|[{}\]]|File |Traceback)|UserWarning|warnings\.warn|Detailed log"
)

OfficialScores = Mapping[str, Mapping[str, float | str]]
"""Columns of the summarizer by system and benchmark."""
Outcome = Literal["passed", "excused", "failed", "did not run"]
"""Outcome of a tool. It is excused if it failed on something that the round accepts, such as the one run of three that
may fail."""


@dataclass(frozen=True)
class ToolVerdict:
    """Result of one official tool on one subject."""

    tool: str
    subject: str
    """Path that was checked."""
    outcome: Outcome
    complaints: tuple[str, ...]
    """The tool's own lines, or the reason why it does not count as run."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    scores: OfficialScores = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.outcome in ("passed", "excused")


@dataclass(frozen=True)
class Task:
    """A tool, its arguments, and the proof that it checked everything and found it good."""

    tool: str
    subject: str
    arguments: Sequence[str]
    must: Mapping[str, int]
    """Patterns, and the number of times that each must occur in the output."""
    must_not: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Original path by path of the copy."""
    notes: tuple[str, ...] = ()
    files: int = 1
    """Number of logs that the tool reads."""
    scores: Callable[[], tuple[OfficialScores, list[str]]] | None = None
    """Function that reads the scores that the tool wrote, and lists errors in them."""


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
    """Return the tool's exit status, a signal as a negative number; None if it did not finish in time. Option -P keeps
    Python from importing from the working folder. Each tool gets one thread, since several tools run at once."""
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
    """Return the patterns that the output lacks, and the forbidden patterns that it contains."""
    counts = {pattern: len(re.findall(pattern, text)) for pattern in task.must}
    lacking = [
        f"the output has {counts[pattern]} of {times} lines with {_plain(pattern)!r}"
        for pattern, times in task.must.items()
        if counts[pattern] != times
    ]
    return lacking + [f"the output has {_plain(one)!r}" for one in task.must_not if re.search(one, text)]


def _complaints(text: str) -> list[str]:
    """Return the output's informative lines, without progress and dumps of the checker's state."""
    told = (line for line in text.splitlines() if line.strip() and not NOISE.match(line))
    lines = list(dict.fromkeys(shortened(line, MOST_WIDTH) for line in told))
    left_out = len(lines) - MOST_COMPLAINTS
    return lines[:MOST_COMPLAINTS] + ([f"… and {left_out} more lines"] if left_out > 0 else [])


def _plain(pattern: str) -> str:
    return pattern.replace("\\", "").removeprefix("(?m)^")
