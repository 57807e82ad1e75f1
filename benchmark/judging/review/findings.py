"""Define the rules of a review as data, apply them, and merge and quote their findings."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from benchmark.judging.results.run_summary import RunSummary
from benchmark.run_record.events.mllog import MOST_BYTES, lines_by_number
from foundation.plain_text import shortened
from foundation.regular_files import read_regular

Severity = Literal["error", "warning", "note"]
"""Severity of a finding. An error makes the review fail; a warning is a question to the submitter; a note is good to
know."""
Subject = TypeVar("Subject")
Run = RunSummary
STOPPED = "review.rule_stopped"
FACTS = "docs/facts/mlperf_review.md"
MOST_SHOWN = 400
"""Largest number of characters shown of a found or expected value, which may come from a stranger."""
MOST_QUOTED = 240
"""Largest number of characters quoted of a line; a record of published logs has about 200."""
MOST_ALSO = 100
"""Largest number of places kept for a finding that occurs in many."""
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
"""A number that stands alone, not one inside a name such as opt_adam_beta_1 or result_0.txt."""
TRAINING_RULES = "mlcommons/training_policies, training_rules.adoc"
SUBMISSION_RULES = "mlcommons/policies, submission_rules.adoc"
TOOLS = "mlperf-logging"

PUBLIC_RULES: Mapping[str, str] = {
    "7.1": f'{TRAINING_RULES}, "Data State at Start of Run"',
    "7.2": f'{TRAINING_RULES}, "Model" and "Pre-training is not allowed"',
    "7.3": f'{TRAINING_RULES}, "Run Results"',
    "7.4": f'{TRAINING_RULES}, "Run Results"',
    "7.5": f'{TRAINING_RULES}, "Hyperparameters"',
    "7.6": f"{TRAINING_RULES}, the hyperparameter constraints of the benchmark",
    "7.7": f'{TRAINING_RULES}, "Hyperparameters"',
    "7.8": f'{TRAINING_RULES}, "Quality measure"',
    "7.9": f'{TRAINING_RULES}, "Benchmark Results" and "Scoring"',
    "7.10": f'{TRAINING_RULES}, "Random numbers"',
    "7.11": f'{TRAINING_RULES}, "Handling RCP Failures"',
    "7.12": f'{SUBMISSION_RULES}, "Submission content"',
    "7.13": f'{SUBMISSION_RULES}, "Results categories"',
    "7": TRAINING_RULES,
    "5": f'{TRAINING_RULES}, "Reference Convergence Points (RCPs)"',
    "4.1": f'{SUBMISSION_RULES}, "Directory structure"',
    "4.2": f'{SUBMISSION_RULES}, "Directory structure"',
    "4.3": f"{TOOLS}, package_checker",
    "4.4": f"{TOOLS}, package_checker/seed_checker.py",
    "4.5": f'{SUBMISSION_RULES}, "<system_desc_id>.json metadata"',
    "4.6": f'{SUBMISSION_RULES}, "Results categories"',
    "4.7": f"{TOOLS}, system_desc_checker and result_summarizer",
    "4.8": f'{TRAINING_RULES}, "Divisions"',
    "4.9": f'{TRAINING_RULES}, "Handling RCP Failures"',
    "4.12": f"{TOOLS}, repo_checker",
    "4.14": f"{TOOLS}, rcp_checker",
    "4.15": f'{TRAINING_RULES}, "Score scaling"',
    "4": f"{TOOLS}, package_checker",
    "3": f"{TOOLS}, compliance_checker/training_*/closed_*.yaml and common.yaml",
    "2": f"{TOOLS}, mllog and compliance_checker/mlp_parser",
    "1": f"{TOOLS}, benchmark_meta.py",
    "6": "no rule: what published, accepted logs have in common",
    "8": "no rule: advice of docs/facts/mlperf_review.md",
}
"""Public text of each section of docs/facts/mlperf_review.md; a chapter stands for its other sections."""
BINDING = ("7", "5", "4", "3", "2", "1", "6", "8")
"""Chapters in order of preference, the rules' own text first."""


@dataclass(frozen=True)
class Deviation:
    """A place that deviates from a rule."""

    path: Path
    line: int | None
    """Line, counted from 1; None for the whole file or folder."""
    observed: str
    expected: str
    case: str = ""
    """Case of the rule, by which its row in the table may give another severity."""


class InLine(Protocol):
    """A record of a log, or a value read from a record."""

    @property
    def line(self) -> int: ...


def at(run: Run, record: InLine | None, observed: str, expected: str, case: str = "") -> Deviation:
    """Return a deviation in a line of a log; without ``where``, a deviation of the whole file."""
    return Deviation(run.log.path, None if record is None else record.line, observed, expected, case)


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
    cases: Mapping[str, Severity] = field(default_factory=dict)
    """Severity of single cases, which differs from the rule's: such as that of a benchmark by its name, if its accepted
    logs break the rule."""
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
    observed: str
    expected: str
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
    def location(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


def apply(rules: Iterable[Rule[Subject]], subject: Subject, subject_path: Path) -> Iterator[Finding]:
    """Yield the findings of every rule in ``subject``, which lies at ``place``.

    A rule that raises an exception is a fault of ours: it becomes an error of its own, and the other rules still apply.
    """
    for rule in rules:
        try:
            for deviation in rule.check(subject):
                severity = rule.cases.get(deviation.case, rule.severity)
                yield Finding(
                    rule.name,
                    severity,
                    f"{FACTS} {rule.source}",
                    str(deviation.path),
                    deviation.line,
                    shortened(deviation.observed, MOST_SHOWN),
                    shortened(deviation.expected, MOST_SHOWN),
                    rule.mend if severity == "error" else "",
                    question=rule.question if severity == "warning" else "",
                    rules=public_rules(rule.source),
                )
        except Exception as error:
            yield stopped(f"the rule {rule.name}", error, subject_path)


def stopped(part: str, error: Exception, path: Path) -> Finding:
    """Return a fault of ours as a finding, so that the reader sees it."""
    observed = shortened(f"{part} stopped: {type(error).__name__}: {error}", MOST_SHOWN)
    mend = "report it with this file: the fault is this program's; the rest was reviewed"
    return Finding(STOPPED, "error", "", str(path), None, observed, "a review that finishes", mend)


def public_rules(source: str) -> str:
    """Return document and section of the public rules for the sections that ``source`` cites."""
    cited = re.findall(r"\b\d\.\d+\b", source)
    for chapter in BINDING:
        for section in cited:
            if section.partition(".")[0] == chapter:
                return PUBLIC_RULES.get(section, PUBLIC_RULES[chapter])
    return ""


def without_consequences(findings: Sequence[Finding], rules: Iterable[Rule[Any]]) -> list[Finding]:
    """Leave out findings that follow from another finding in the same file, by ``Rule.explains``."""
    explaining = {rule.name: rule.explains for rule in rules if rule.explains}
    explained: dict[str, tuple[str, ...]] = {}
    for finding in findings:
        explained[finding.path] = explained.get(finding.path, ()) + explaining.get(finding.rule, ())
    return [
        finding
        for finding in findings
        if finding.rule in explaining or not finding.rule.startswith(explained[finding.path])
    ]


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for all that differ only in numbers and places; ``also`` has the other places.

    Call this with the findings of one system, so that another system keeps its own.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(
            (finding.rule, NUMBER.sub("#", finding.observed), NUMBER.sub("#", finding.expected)), []
        ).append(finding)
    return [
        replace(
            first,
            also=tuple(dict.fromkeys(finding.location for finding in duplicates if finding.location != first.location))[
                :MOST_ALSO
            ],
        )
        for first, *duplicates in groups.values()
    ]


def quoted(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with their lines; every file is read once. The line is empty if the file cannot be read."""
    line_numbers: dict[str, set[int]] = {}
    for finding in findings:
        if finding.line is not None:
            line_numbers.setdefault(finding.path, set()).add(finding.line)
    lines: dict[str, dict[int, str]] = {}
    for path, numbers in line_numbers.items():
        with contextlib.suppress(OSError):
            lines[path] = lines_by_number(read_regular(Path(path), MOST_BYTES), numbers)
    return [
        replace(finding, text=shortened(lines.get(finding.path, {}).get(finding.line or 0, ""), MOST_QUOTED))
        for finding in findings
    ]
