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

MOST_OUTPUT = 4 << 20
"""Bytes of a tool's output that are read; a failing checker prints the whole log."""
MOST_COMPLAINTS = 12
MOST_WIDTH = 300

CPU_S_PER_LOG = 10
"""Seconds of a processor."""

OfficialScores = Mapping[str, Mapping[str, float | str]]
Outcome = Literal["passed", "excused", "failed", "did not run"]
"""excused: it failed on the one run of three that may fail; the package checker accepts that."""


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
    scores: OfficialScores = field(default_factory=dict)
    """Of the summarizer: its columns by system."""

    @property
    def passed(self) -> bool:
        return self.outcome in ("passed", "excused")


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
    files: int = 1
    """How many logs it reads."""
    scores: Callable[[], OfficialScores] | None = None
    """The scores among the files it wrote."""


@dataclass(frozen=True)
class Limits:
    """What a tool may take. A published log takes a second of a processor at most, one with 25,000 evaluations two to
    three, and 200 MiB with the tool's libraries."""

    wall_s: float
    cpu_s: int
    memory_bytes: int = 1 << 30
    """Of its own; libraries read from files are not counted."""
    output_bytes: int = 1 << 30

    @classmethod
    def for_files(cls, files: int) -> "Limits":
        """For a tool that reads so many logs; by the clock more, since other programs may be running."""
        return cls(60.0 + 30.0 * files, CPU_S_PER_LOG * files)

    def impose_on(self, process_id: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            resource.prlimit(process_id, resource.RLIMIT_CPU, (self.cpu_s, self.cpu_s + 1))
            resource.prlimit(process_id, resource.RLIMIT_DATA, (self.memory_bytes, self.memory_bytes))
            resource.prlimit(process_id, resource.RLIMIT_FSIZE, (self.output_bytes, self.output_bytes))

    def told(self, number: int) -> str:
        """What a signal means that ended it."""
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return f"it took more than {self.cpu_s} s of a processor, or was killed: it was ended"
        return f"it was ended by signal {number}"


CRASH = r"Traceback \(most recent call last\)"


def run_task(task: Task, limits: Limits | None = None) -> ToolVerdict:
    """Run a tool in a process of its own, in an empty folder, within limits, and judge it by its proof."""
    limits = limits or Limits.for_files(task.files)
    started = time.perf_counter()
    ended = _run(task.arguments, limits)
    seconds = time.perf_counter() - started
    text = ended.text

    def check(outcome: Outcome, complaints: Sequence[str]) -> ToolVerdict:
        words = tuple(_rename(complaint, task.renamed) for complaint in complaints)
        scores = task.scores() if task.scores is not None and ended.cut_short is None else {}
        return ToolVerdict(task.tool, task.subject, outcome, words, task.notes, seconds, scores)

    if ended.cut_short is not None:
        return check("did not run", [ended.cut_short, *_complaints(text)[-1:]])
    if re.search(CRASH, text):
        last = [line for line in text.splitlines() if line.strip()][-1]
        return check("did not run", [f"the tool crashed: {shortened(last, MOST_WIDTH)}", *_complaints(text)])
    if ended.status != 0:
        return check("failed", _complaints(text) or [f"exit status {ended.status}"])
    missing = task.proof.missing(text)
    if not missing and task.afterwards is not None:
        missing = task.afterwards()
    if missing:
        return check("failed", [*_complaints(text), *missing])
    return check("passed", ())


@dataclass(frozen=True)
class ToolEnd:
    """How a tool's process ended."""

    status: int
    text: str
    cut_short: str | None
    """By which limit, or by whose signal, it was ended; None: by itself."""


def _run(arguments: Sequence[str], limits: Limits) -> ToolEnd:
    """-P: nothing in the working folder is ever imported."""
    with tempfile.TemporaryDirectory(prefix="review-") as folder, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-P", *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, env=_environment(), start_new_session=True,
        )  # fmt: skip
        cut_short = None
        try:
            limits.impose_on(process.pid)
            process.wait(limits.wall_s)
        except subprocess.TimeoutExpired:
            cut_short = f"no answer within {limits.wall_s:g} s: it was ended"
        finally:
            with contextlib.suppress(ProcessLookupError):  # nobody of its group is left
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        if status < 0 and cut_short is None:
            cut_short = limits.told(-status)
        text = _read(output)
        if output.seek(0, os.SEEK_END) >= limits.output_bytes:
            cut_short = f"it wrote more than {limits.output_bytes >> 20:,} MiB: it was ended"
    if cut_short is None and "MemoryError" in text[-MOST_WIDTH:]:
        cut_short = f"it wanted more than {limits.memory_bytes >> 20:,} MiB of memory"
    return ToolEnd(status, text, cut_short)


def _read(output: IO[bytes]) -> str:
    """What it wrote: the beginning and the end of what is very much."""
    size = output.seek(0, os.SEEK_END)
    output.seek(0)
    content = output.read(MOST_OUTPUT)
    if size > 2 * MOST_OUTPUT:
        output.seek(-MOST_OUTPUT, os.SEEK_END)
        content += b"\n"
    return (content + output.read(MOST_OUTPUT)).decode("utf-8", "replace")


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
