"""What a review finds: rules as data, and their findings."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from benchmark.results.printable import shortened
from benchmark.results.run_summary import RunSummary
from benchmark.review.public_rules import public_rules

Severity = Literal["error", "warning", "note"]
"""error: not acceptable, the review fails; warning: a question to the submitter; note: good to know."""
Subject = TypeVar("Subject")
Run = RunSummary
STOPPED = "review.rule_stopped"
FACTS = "docs/facts/mlperf_review.md"
MOST_SHOWN = 400
"""Characters of what was found or is due: a stranger's values are among them."""


@dataclass(frozen=True)
class Deviation:
    """Where something is not as a rule has it."""

    path: Path
    line: int | None
    """Counted from 1; None: the whole file or folder."""
    found: str
    due: str
    severity: Severity | None = None
    """Where it is less than the rule's."""


class InLine(Protocol):
    """A record of a log, or what was read from one."""

    @property
    def line(self) -> int: ...


def at(run: Run, where: InLine | None, found: str, due: str, severity: Severity | None = None) -> Deviation:
    """Return a deviation in a line of a log; None: in the whole file."""
    return Deviation(run.log.path, None if where is None else where.line, found, due, severity)


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """One check of ours, as data."""

    name: str
    """FAMILY.TOPIC, unique."""
    severity: Severity
    source: str
    """Where the rule stands: sections of docs/facts/mlperf_review.md, and their topic in words."""
    check: Callable[[Subject], Iterable[Deviation]]
    mend: str = ""
    """What a submitter does about an error."""
    question: str = ""
    """What a reviewer asks the submitter where it is no error."""
    explains: tuple[str, ...] = ()
    """Beginnings of the names of rules whose findings in the same file follow from a finding of this one: left out."""


@dataclass(frozen=True)
class Finding:
    """One thing to act on."""

    rule: str
    severity: Severity
    source: str
    path: str
    line: int | None
    found: str
    due: str
    mend: str
    """What a submitter does about it; empty for a question."""
    text: str = ""
    """The line itself, without control characters and cut to a bound; empty: no line, or a file that is not read."""
    question: str = ""
    """What a reviewer asks the submitter; empty for errors and notes."""
    rules: str = ""
    """Where the public rules say so: document and section."""
    also: tuple[str, ...] = ()
    """Other places of one system where the same was found, as ``path:line``."""

    @property
    def place(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


def apply(rules: Iterable[Rule[Subject]], subject: Subject, place: Path) -> Iterator[Finding]:
    """Yield what every rule finds in ``subject``, which lies at ``place``.

    A rule that stops on something is a fault of ours: an error of its own, and the others are applied all the same.
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
    """Return a fault of ours as a finding, said where it shows."""
    found = shortened(f"{what} stopped: {type(error).__name__}: {error}", MOST_SHOWN)
    mend = "report it with this file: the fault is this program's; the rest was reviewed"
    return Finding(STOPPED, "error", "", str(place), None, found, "a review that comes to its end", mend)
