"""Define the rules of a review as data, and their findings."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from benchmark.results.printable import shortened
from benchmark.results.run_summary import RunSummary
from benchmark.review.public_rules import public_rules

Severity = Literal["error", "warning", "note"]
"""Severity of a finding. An error makes the review fail; a warning is a question to the submitter; a note is good to
know."""
Subject = TypeVar("Subject")
Run = RunSummary
STOPPED = "review.rule_stopped"
FACTS = "docs/facts/mlperf_review.md"
MOST_SHOWN = 400
"""Largest number of characters shown of a found or expected value, which may come from a stranger."""


@dataclass(frozen=True)
class Deviation:
    """A place that deviates from a rule."""

    path: Path
    line: int | None
    """Line, counted from 1; None for the whole file or folder."""
    found: str
    due: str
    severity: Severity | None = None
    """Severity, if it is less than the rule's."""


class InLine(Protocol):
    """A record of a log, or a value read from a record."""

    @property
    def line(self) -> int: ...


def at(run: Run, where: InLine | None, found: str, due: str, severity: Severity | None = None) -> Deviation:
    """Return a deviation in a line of a log; without ``where``, a deviation of the whole file."""
    return Deviation(run.log.path, None if where is None else where.line, found, due, severity)


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """One check of our own, as data."""

    name: str
    """Unique name, as FAMILY.TOPIC."""
    severity: Severity
    source: str
    """Sections of docs/facts/mlperf_review.md that state the rule, and their topic in words."""
    check: Callable[[Subject], Iterable[Deviation]]
    mend: str = ""
    """Instruction to the submitter for mending an error."""
    question: str = ""
    """Question to the submitter if the finding is not an error."""
    explains: tuple[str, ...] = ()
    """Beginnings of names of rules whose findings follow from a finding of this rule in the same file, and are left
    out."""


@dataclass(frozen=True)
class Finding:
    """One finding to act on."""

    rule: str
    severity: Severity
    source: str
    path: str
    line: int | None
    found: str
    due: str
    mend: str
    """Instruction to the submitter; empty for a question."""
    text: str = ""
    """The line itself, without control characters and shortened; empty without a line, or for a file that is not
    read."""
    question: str = ""
    """Question to the submitter; empty for errors and notes."""
    rules: str = ""
    """Document and section of the public rules that state the rule."""
    also: tuple[str, ...] = ()
    """Other places of one system with the same finding, as ``path:line``."""

    @property
    def place(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


def apply(rules: Iterable[Rule[Subject]], subject: Subject, place: Path) -> Iterator[Finding]:
    """Yield the findings of every rule in ``subject``, which lies at ``place``.

    A rule that raises an exception is a fault of ours: it becomes an error of its own, and the other rules still apply.
    """
    for rule in rules:
        try:
            for one in rule.check(subject):
                severity = one.severity or rule.severity
                yield Finding(
                    rule.name,
                    severity,
                    f"{FACTS} {rule.source}",
                    str(one.path),
                    one.line,
                    shortened(one.found, MOST_SHOWN),
                    shortened(one.due, MOST_SHOWN),
                    rule.mend if severity == "error" else "",
                    question=rule.question if severity == "warning" else "",
                    rules=public_rules(rule.source),
                )
        except Exception as error:
            yield stopped(f"the rule {rule.name}", error, place)


def stopped(what: str, error: Exception, place: Path) -> Finding:
    """Return a fault of ours as a finding, so that the reader sees it."""
    found = shortened(f"{what} stopped: {type(error).__name__}: {error}", MOST_SHOWN)
    mend = "report it with this file: the fault is this program's; the rest was reviewed"
    return Finding(STOPPED, "error", "", str(place), None, found, "a review that finishes", mend)
