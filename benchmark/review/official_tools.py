"""The official checkers, each in a fresh process, believed only when their text proves that they ran and passed.

Four of them exit with 0 whatever they find; the package checker prints SUCCESS over a benchmark it skipped; some crash
on a word or a character (docs/facts/mlperf_review.md 1.4, 4.10, 4.14). So every tool has a proof here: what must stand
in its output, as often as there are files, and what must not.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchmark.results.printable import shortened

TIMEOUT_S = 300.0
MOST_OUTPUT = 4 << 20
"""Bytes of a tool's output that are read; a failing checker prints the whole log."""
MOST_COMPLAINTS = 12
MOST_WIDTH = 300

Outcome = Literal["passed", "failed", "did not run"]


@dataclass(frozen=True)
class ToolVerdict:
    """What one official tool said of one thing."""

    tool: str
    subject: str
    """Path of what was checked."""
    outcome: Outcome
    complaints: tuple[str, ...]
    """The tool's own lines, or why it does not count as run."""
    notes: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


@dataclass(frozen=True)
class Proof:
    """When a tool's output proves that it checked everything and found it good."""

    must: Mapping[str, int] = field(default_factory=dict)
    """Patterns, and how often each must be there."""
    must_not: tuple[str, ...] = ()

    def missing(self, text: str) -> list[str]:
        """What the output lacks, or has and should not have."""
        present = [f"the output has {_plain(pattern)!r}" for pattern in self.must_not if re.search(pattern, text)]
        lacking = [
            f"the output has {len(re.findall(pattern, text))} of {times} lines with {_plain(pattern)!r}"
            for pattern, times in self.must.items()
            if len(re.findall(pattern, text)) != times
        ]
        return lacking + present


@dataclass(frozen=True)
class Task:
    """A tool to run on something."""

    tool: str
    subject: str
    arguments: Sequence[str]
    proof: Proof
    renamed: Mapping[str, str]
    """Paths of the scratch folder, and those they stand for."""
    notes: tuple[str, ...] = ()
    afterwards: Callable[[], list[str]] | None = None
    """Further proof, from the files it wrote: what is wrong with them."""


CRASH = r"Traceback \(most recent call last\)"


def run_task(task: Task, timeout_s: float = TIMEOUT_S) -> ToolVerdict:
    """Run a tool in a process of its own, in an empty folder, and judge it by its proof."""
    started = time.perf_counter()
    status, text = _run(task.arguments, timeout_s)
    seconds = time.perf_counter() - started

    def check(outcome: Outcome, complaints: Sequence[str]) -> ToolVerdict:
        words = tuple(_rename(complaint, task.renamed) for complaint in complaints)
        return ToolVerdict(task.tool, task.subject, outcome, words, task.notes, seconds)

    if status is None:
        return check("did not run", [f"no answer within {timeout_s:g} s"])
    if re.search(CRASH, text):
        last = [line for line in text.splitlines() if line.strip()][-1]
        return check("did not run", [f"the tool crashed: {shortened(last, MOST_WIDTH)}", *_complaints(text)])
    if status != 0:
        return check("failed", _complaints(text) or [f"exit status {status}"])
    missing = task.proof.missing(text)
    if not missing and task.afterwards is not None:
        missing = task.afterwards()
    if missing:
        return check("failed", [*_complaints(text), *missing])
    return check("passed", ())


def _run(arguments: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """Exit status, None after the time-out, and output. -P: nothing in the working folder is ever imported."""
    with tempfile.TemporaryDirectory(prefix="review-") as folder, tempfile.TemporaryFile() as output:
        command = [sys.executable, "-P", *arguments]
        try:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                timeout=timeout_s, check=False, env=_environment(),
            )  # fmt: skip
            status: int | None = done.returncode
        except subprocess.TimeoutExpired:
            status = None
        size = output.tell()
        output.seek(0)
        content = output.read(MOST_OUTPUT)
        if size > 2 * MOST_OUTPUT:
            output.seek(-MOST_OUTPUT, os.SEEK_END)
            content += b"\n"
        content += output.read(MOST_OUTPUT)
    return status, content.decode("utf-8", "replace")


def _environment() -> dict[str, str]:
    """The process's own, without what changes how Python speaks, and one thread each: several tools run at once."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    noisy = ("PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONVERBOSE", "PYTHONINSPECT", "PYTHONSTARTUP")
    return {name: value for name, value in os.environ.items() if name not in noisy} | single | {"PYTHONUTF8": "1"}


NOISE = re.compile(
    r"^(INFO|\*\*|current (context|line)|-{5,}|\s|[{}\]]|File |Traceback)|UserWarning|warnings\.warn|Detailed log"
)


def _complaints(text: str) -> list[str]:
    """The lines that say something: no progress, no dumps of the checker's state."""
    lines = [shortened(line, MOST_WIDTH) for line in text.splitlines() if line.strip() and not NOISE.match(line)]
    lines = list(dict.fromkeys(lines))
    left_out = len(lines) - MOST_COMPLAINTS
    return lines[:MOST_COMPLAINTS] + ([f"… and {left_out} more lines"] if left_out > 0 else [])


def _rename(text: str, renamed: Mapping[str, str]) -> str:
    for scratch in sorted(renamed, key=len, reverse=True):
        text = text.replace(scratch, renamed[scratch])
    return text


def _plain(pattern: str) -> str:
    return pattern.replace("\\", "").removeprefix("(?m)^")
