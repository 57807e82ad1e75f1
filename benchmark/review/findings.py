"""What a review finds: rules as data, and their findings."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from benchmark.results.mllog import LogEvent
from benchmark.results.run_summary import RunSummary

Severity = Literal["error", "warning", "note"]
"""error: not acceptable, the review fails; warning: a reviewer will ask; note: good to know."""
Subject = TypeVar("Subject")
Run = RunSummary


@dataclass(frozen=True)
class Deviation:
    """Where something is not as a rule has it."""

    path: Path
    line: int | None
    """Counted from 1; None: the whole file or folder."""
    found: str
    due: str
    mend: str


def at(run: Run, event: LogEvent, found: str, due: str, mend: str) -> Deviation:
    """A deviation in the line of one record."""
    return Deviation(run.log.path, event.line, found, due, mend)


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """One check of ours, as data."""

    name: str
    severity: Severity
    source: str
    """Where the rule stands: sections of docs/facts/mlperf_review.md, and their topic in words."""
    check: Callable[[Subject], Iterable[Deviation]]


@dataclass(frozen=True)
class Finding:
    """One line of a review."""

    rule: str
    severity: Severity
    source: str
    path: str
    line: int | None
    found: str
    due: str
    mend: str

    @property
    def place(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


def apply(rules: Iterable[Rule[Subject]], subject: Subject) -> Iterator[Finding]:
    """What every rule finds in ``subject``."""
    for rule in rules:
        for one in rule.check(subject):
            yield Finding(rule.name, rule.severity, rule.source, str(one.path), one.line, one.found, one.due, one.mend)
