"""``review``: the official checkers and the rules of our own on results and packages, and what they come to."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchmark.results.convergence import USUAL_REFERENCES, ReferenceChoice, custom_points
from benchmark.results.score import Score, score
from benchmark.results.subjects import ResultSet, Subject, SubmissionPackage, find_subjects
from benchmark.review.findings import Finding, Severity, apply, stopped
from benchmark.review.merged_findings import merged, quoted, without_consequences
from benchmark.review.official_checkers import COMPLIANCE, REPOSITORY, TOOLS, run_checkers
from benchmark.review.official_tools import ToolVerdict
from benchmark.review.rules.rule_table import (
    LOG_RULES,
    PACKAGE_RULES,
    RESULT_RULES,
    ROUND_RULES,
    SET_RULES,
    SYSTEM_RULES,
)
from benchmark.review.rules.set_rules import RUNS
from benchmark.review.rules.system_rules import Described

Verdict = Literal["acceptable", "acceptable with questions", "rejected"]
WORST_FIRST: tuple[Verdict, ...] = ("rejected", "acceptable with questions", "acceptable")
ONE_MAY_FAIL = "it does not comply, as one of three runs may"
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class SubjectReview:
    """The review of a package, or of the runs of one system."""

    kind: Literal["package", "runs"]
    path: str
    ruleset: str
    checks: tuple[ToolVerdict, ...]
    findings: tuple[Finding, ...]
    sets: tuple[ResultSet, ...]
    scores: tuple[Score, ...]
    """One per set."""

    @property
    def verdict(self) -> Verdict:
        """rejected: an error, or an official tool that failed or did not run; questions: warnings."""
        if not self.passed:
            return "rejected"
        return "acceptable with questions" if self.of("warning") else "acceptable"

    @property
    def passed(self) -> bool:
        """Every official tool that applies ran and passed, and no rule of ours has an error."""
        return bool(self.checks) and all(check.passed for check in self.checks) and not self.of("error")

    @property
    def root(self) -> Path:
        """The folder that paths are told from: the package, or where all files of the runs lie."""
        if self.kind == "package":
            return Path(self.path)
        folders = {str(path.parent) for one in self.sets for path in one.files}
        return Path(os.path.commonpath(folders)) if folders else Path(self.path)

    def near(self, text: str) -> str:
        """A path of it, or a text with such paths, without the folder that all of them share."""
        root = str(self.root)
        return "." if text == root else text.replace(f"{root}{os.sep}", "")

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == severity]

    @property
    def not_applicable(self) -> tuple[str, ...]:
        """Official tools that have nothing to check here."""
        return tuple(name for names in self.declined.values() for name in names)

    @property
    def declined(self) -> dict[str, list[str]]:
        """Official tools that have nothing to check here, by the reason why."""
        reasons: dict[str, list[str]] = {}
        for one in self.sets if self.kind == "runs" else ():
            for tool in TOOLS:
                why = tool.declines(one)
                if why is not None:
                    reasons.setdefault(why, []).append(tool.name)
        return reasons


@dataclass(frozen=True)
class Review:
    """What was reviewed, and how long it took."""

    subjects: tuple[SubjectReview, ...]
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """The worst of its subjects'; rejected where there is none."""
        verdicts = {subject.verdict for subject in self.subjects}
        return next((one for one in WORST_FIRST if one in verdicts), "rejected")

    @property
    def passed(self) -> bool:
        return bool(self.subjects) and all(subject.passed for subject in self.subjects)


def review(paths: Sequence[Path], ruleset: str | None = None, references: ReferenceChoice = USUAL_REFERENCES) -> Review:
    """Review result files, folders of them and packages.

    Raises InputError for a path without results, a ruleset without gpt3 and custom reference points that are none;
    whatever is in the files is a finding.
    """
    started = time.perf_counter()
    if references.custom is not None:
        custom_points(references.custom)
    subjects = find_subjects(paths, ruleset, references)
    checked = run_checkers(subjects)
    reviews = tuple(subject_review(subject, checks) for subject, checks in zip(subjects, checked, strict=True))
    return Review(with_copies(reviews), time.perf_counter() - started)


def with_copies(subjects: Sequence[SubjectReview]) -> tuple[SubjectReview, ...]:
    """The reviews, with an error for every run that another package of the same folder has, too.

    Packages of other folders are other rounds, whose logs may be submitted again; loose runs may be what a package was
    made of.
    """
    runs = {one.path: [run for each in one.sets for run in each.runs] for one in subjects if one.kind == "package"}

    def with_its_copies(one: SubjectReview) -> SubjectReview:
        beside = [path for path in runs if path != one.path and Path(path).parent == Path(one.path).parent]
        others = [run for path in beside for run in runs[path]]
        if one.kind != "package" or not others:
            return one
        found = quoted(merged(apply(ROUND_RULES, (runs[one.path], others), Path(one.path))))
        return replace(one, findings=_worst_first((*one.findings, *found)))

    return tuple(map(with_its_copies, subjects))


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def own_findings(subject: Subject) -> tuple[Finding, ...]:
    """What the rules of our own say, errors first; no process is started.

    A finding stands once per system, without what only follows from another, and with the line it is about.
    """
    found: list[Finding] = []
    for one in _sets(subject):
        mine = [finding for run in one.runs for finding in apply(LOG_RULES, run, run.log.path)]
        place = Path(_place(one))
        mine += apply(SET_RULES, one.runs, place)
        mine += apply(RESULT_RULES, one, place)
        found += merged(without_consequences(mine, (*LOG_RULES, *SET_RULES)))
    if isinstance(subject, SubmissionPackage):
        names = {one.name for one in subject.sets}
        for description in subject.descriptions:
            told = merged(apply(SYSTEM_RULES, Described(description, subject.ruleset), description.path))
            # those of other benchmarks' systems are the official tools' business, and no question here
            found += [one for one in told if description.path.stem in names or one.severity == "error"]
        found += merged(apply(PACKAGE_RULES, subject, subject.path))
    return _worst_first(quoted(found))


def subject_review(subject: Subject, checks: Sequence[ToolVerdict]) -> SubjectReview:
    """What our own rules, the score and the checks of the official tools say of it.

    A fault of ours in the review of one subject is an error of it, and the others are reviewed all the same.
    """
    try:
        return _review(subject, checks)
    except Exception as error:
        package = isinstance(subject, SubmissionPackage)
        path = str(subject.path) if isinstance(subject, SubmissionPackage) else _place(subject)
        found = (stopped("the review", error, Path(path), ""),)
        return SubjectReview("package" if package else "runs", path, subject.ruleset, tuple(checks), found, (), ())


def _review(subject: Subject, checks: Iterable[ToolVerdict]) -> SubjectReview:
    sets, findings = _sets(subject), own_findings(subject)
    package = isinstance(subject, SubmissionPackage)
    return SubjectReview(
        kind="package" if package else "runs",
        path=str(subject.path) if isinstance(subject, SubmissionPackage) else _place(subject),
        ruleset=subject.ruleset,
        checks=names_excused(excused(checks, sets), findings),
        findings=findings,
        sets=sets,
        scores=tuple(score(one) for one in sets),
    )


def excused(checks: Iterable[ToolVerdict], sets: Sequence[ResultSet]) -> tuple[ToolVerdict, ...]:
    """The checks, with the compliance of the one run of three excused that was aborted: the official package checker
    accepts one file that does not comply (docs/facts/mlperf_review.md 4.3), and it counts as the slowest."""
    found = tuple(checks)
    may_fail = set()
    for one in sets:
        names = {str(path) for path in one.files}
        wrong = [
            check for check in found if check.tool == COMPLIANCE.name and check.subject in names and not check.passed
        ]
        failed = {str(run.log.path) for run in one.runs if run.was_aborted}
        if len(names) == RUNS and len(wrong) == 1 and wrong[0].outcome == "failed" and wrong[0].subject in failed:
            may_fail.add(wrong[0].subject)
    return tuple(
        replace(check, outcome="excused", notes=(*check.notes, f"{Path(check.subject).name}: {ONE_MAY_FAIL}"))
        if check.tool == COMPLIANCE.name and check.subject in may_fail
        else check
        for check in found
    )


def names_excused(checks: Iterable[ToolVerdict], findings: Sequence[Finding]) -> tuple[ToolVerdict, ...]:
    """The checks, with the repository checker excused where all that it can complain of are names in the code that the
    round accepted: notes of our rules, which are its own."""
    rules = ("package.names", "package.sizes", "package.links")
    severities = {one.severity for one in findings if one.rule in rules}
    return tuple(
        replace(check, outcome="excused", notes=(*check.notes, "the round accepted the names that it refuses"))
        if check.tool == REPOSITORY.name and check.outcome == "failed" and severities == {"note"}
        else check
        for check in checks
    )


def _sets(subject: Subject) -> tuple[ResultSet, ...]:
    return tuple(subject.sets) if isinstance(subject, SubmissionPackage) else (subject,)


def _place(one: ResultSet) -> str:
    """The folder of runs that lie together, the file of a single one, else all files."""
    if len(one.files) > 1 and one.folder is not None:
        return str(one.folder)
    return ", ".join(str(path) for path in one.files)
