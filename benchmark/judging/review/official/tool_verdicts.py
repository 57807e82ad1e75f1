"""Run an official checker on its copies, and believe it only if its output proves that it ran and passed.

Four of them exit with 0 whatever they find; the package checker prints SUCCESS over a benchmark it skipped; some crash
on a word or a character (docs/facts/mlperf_review.md 1.4, 4.10, 4.14). So every tool has a proof here: patterns that
its output must contain, as often as there are files, and patterns that it must not contain.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmark.judging.review.official.stored_runs import StoredRun, digest_of
from benchmark.judging.review.official.subject_copies import SubjectCopies
from benchmark.judging.review.official.tool_process import CPU_S_PER_LOG, ServerEndedError, ToolProcess, ToolRun, wall_s
from foundation.plain_text import shortened

FOLDER = "{folder}"
"""In arguments and patterns: the folder of the copies."""
MOST_COMPLAINTS = 12
MOST_WIDTH = 300
CRASH = "Traceback (most recent call last)"
NOISE = re.compile(
    r"^(INFO|\*\*|current (context|line)|-{5,}|\s|[{}\]]|File |Traceback|(Strong|Weak) Scaling Scores:|During handling)"
    r"|UserWarning|RuntimeWarning|warnings\.warn|Detailed log"
)

RCP_FOUND = re.compile(r"(?<=RCP Test Failed)(.*)RCP found\.?$")
RCP_MEANING = r"\1the runs fail the test, or are not as many as it takes (the tool: RCP found)"
"""Words for a message of summarizer and package checker that says only that there are reference points."""
TOLD = re.compile(r"\b(ERRORS?|FAILED)\b")
"""Word of a complaint in which a tool says that it found something wrong."""
OfficialScores = Mapping[str, Mapping[str, float | str]]
"""Columns of the summarizer by system and benchmark."""
ToolOutcome = Literal["passed", "excused", "failed", "did not run"]
"""Outcome of a tool. It is excused if it failed on something that the round accepts, such as the one run of three that
may fail."""


@dataclass(frozen=True)
class ToolVerdict:
    """Result of one official tool on one subject."""

    tool: str
    subject: str
    """Path that was checked."""
    outcome: ToolOutcome
    complaints: tuple[str, ...]
    """The tool's own lines, or the reason why it does not count as run."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    scores: OfficialScores = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.outcome in ("passed", "excused")


@dataclass(frozen=True)
class OfficialTool:
    """An official tool, as a program."""

    name: str
    program: str
    """Module or script."""
    needs: str
    """Module that it imports."""


@dataclass(frozen=True)
class Task:
    """A tool, its arguments, and the proof that it checked everything and found it good."""

    tool: OfficialTool
    subject: str
    arguments: Sequence[str]
    copies: SubjectCopies
    """The files that it reads and may change."""
    must: Mapping[str, int]
    """Patterns, and the number of times that each must occur in the output."""
    must_not: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    logs: int = 1
    """Number of logs that the tool reads."""
    table: str = ""
    """File in the folder in which the tool writes scores."""
    scores: Callable[[str], tuple[OfficialScores, list[str]]] | None = None
    """Function that reads the scores in the content of that file, and lists errors in them."""


def run_task(task: Task, tools: ToolProcess) -> ToolVerdict:
    """Run a tool on its copies, within limits, and judge it by its proof; it is not run on copies that it may not
    see."""
    name, notes = task.tool.name, (*task.copies.notes, *task.notes)
    if task.copies.refusals:
        reason = shortened(f"not run, because {next(iter(task.copies.refusals.values()))}", MOST_WIDTH)
        return ToolVerdict(name, task.subject, "did not run", (reason,), notes)
    folder = task.copies.folder
    try:
        ran, table = _stored_or_run(task, tools)
    except ServerEndedError as error:
        return ToolVerdict(name, task.subject, "did not run", (str(error),), notes)
    scores, wrong = ({}, []) if task.scores is None else task.scores(table)
    outcome, complaints = _judged(task, ran, wrong)
    for target in sorted(task.copies.renamed, key=len, reverse=True):
        copy, original = str(folder / target), task.copies.renamed[target]
        complaints = [line.replace(copy, original) for line in complaints]
    return ToolVerdict(name, task.subject, outcome, tuple(complaints), notes, ran.seconds, scores)


def _stored_or_run(task: Task, tools: ToolProcess) -> tuple[ToolRun, str]:
    """Return the tool's run, and the content of its table: those of an earlier review if it read the same bytes."""
    folder, program = task.copies.folder, task.tool.program
    digest = digest_of(task.tool.needs, task.arguments, folder, FOLDER)
    stored = tools.stored.get(digest)
    if stored is not None:
        return ToolRun(stored.status, stored.output.replace(FOLDER, str(folder)), stored.seconds), stored.table
    arguments = [argument.replace(FOLDER, str(folder)) for argument in task.arguments]
    ran = tools.run(program, task.tool.needs, arguments, folder, task.logs)
    table = _content(folder / task.table)
    if ran.status is not None and ran.status >= 0 and FOLDER not in ran.output:
        output = ran.output.replace(str(folder), FOLDER)
        tools.stored.put(digest, StoredRun(ran.status, output, table, ran.seconds))
    return ran, table


def _content(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def _judged(task: Task, ran: ToolRun, wrong: list[str]) -> tuple[ToolOutcome, list[str]]:
    """Return the outcome of a tool's process, and complaints; ``wrong`` are errors in the scores that it wrote."""
    text, status = ran.output, ran.status
    complaints = _complaints(text)
    if status is None:
        return "did not run", [f"no answer within {wall_s(task.logs):g} s: it was ended", *complaints[-1:]]
    if status < 0:
        why = f"it was ended by signal {-status}, as for more than {CPU_S_PER_LOG * task.logs} s of a processor"
        return "did not run", [why, *complaints[-1:]]
    if CRASH in text:
        crash = shortened(_exception(text), MOST_WIDTH)
        return "did not run", [f"the tool crashed: {crash}", *(line for line in complaints if line != crash)]
    if status != 0:
        return "failed", complaints or [f"exit status {status}"]
    wrong = _unproven(task, text) or wrong
    if not wrong:
        return "passed", []
    named = [line for line in complaints if TOLD.search(line)]  # the tool has said itself what is wrong
    return "failed", complaints if named else [*complaints, *wrong]


def _exception(text: str) -> str:
    """Return the line of the last exception: the first one after its traceback's indented lines."""
    after = text.rpartition(CRASH)[2].splitlines()[1:]
    return next((line for line in after if line.strip() and not line.startswith((" ", "\t"))), "no exception is named")


def _unproven(task: Task, text: str) -> list[str]:
    """Return the patterns that the output lacks, and the forbidden patterns that it contains."""
    folder = re.escape(str(task.copies.folder))
    counts = {pattern: len(re.findall(pattern.replace(FOLDER, folder), text)) for pattern in task.must}
    lacking = [
        f"the output has {counts[pattern]} of {times} lines with {_plain(pattern)!r}"
        for pattern, times in task.must.items()
        if counts[pattern] != times
    ]
    return lacking + [f"the output has {_plain(pattern)!r}" for pattern in task.must_not if re.search(pattern, text)]


def _complaints(text: str) -> list[str]:
    """Return the output's informative lines, without progress and dumps of the checker's state."""
    informative = (line for line in text.splitlines() if line.strip() and not NOISE.search(line))
    lines = list(dict.fromkeys(shortened(RCP_FOUND.sub(RCP_MEANING, line), MOST_WIDTH) for line in informative))
    left_out = len(lines) - MOST_COMPLAINTS
    return lines[:MOST_COMPLAINTS] + ([f"… and {left_out} more lines"] if left_out > 0 else [])


def _plain(pattern: str) -> str:
    return pattern.replace("\\", "").removeprefix("(?m)^")
