"""Run ``review``: apply the official checkers and our own rules to results and packages, and reach a verdict."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchmark.judging.results.convergence import USUAL_REFERENCES, ReferenceChoice, custom_points
from benchmark.judging.results.score import Score, score
from benchmark.judging.results.subjects import ResultSet, Subject, SubmissionPackage, find_subjects
from benchmark.judging.review.findings import Finding, Severity, apply, merged, quoted, stopped, without_consequences
from benchmark.judging.review.official.official_checkers import COMPLIANCE, REPOSITORY, inapplicable, run_checkers
from benchmark.judging.review.official.stored_runs import usual_folder
from benchmark.judging.review.official.tool_process import tool_process
from benchmark.judging.review.official.tool_verdicts import ToolVerdict
from benchmark.judging.review.rules.rule_table import LOG_RULES, PACKAGE_RULES, ROUND_RULES, SET_RULES
from foundation.progress import progress

Verdict = Literal["acceptable", "acceptable with questions", "rejected"]
WORST_FIRST: tuple[Verdict, ...] = ("rejected", "acceptable with questions", "acceptable")
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
    """Scores, one per set."""

    @property
    def verdict(self) -> Verdict:
        """Return the verdict: rejected for an error, or for an official tool that failed or did not run; questions for
        warnings."""
        if not self.passed:
            return "rejected"
        return "acceptable with questions" if self.of("warning") else "acceptable"

    @property
    def passed(self) -> bool:
        """Return whether every official tool that applies ran and passed, and no rule of ours found an error."""
        return bool(self.checks) and all(check.passed for check in self.checks) and not self.of("error")

    @property
    def root(self) -> Path:
        """Return the folder from which paths are shown: the package, or the common folder of all runs' files."""
        path = Path(self.path)
        return path.parent if any(path in one.files for one in self.sets) else path

    def near(self, text: str) -> str:
        """Return a path, or a text with paths, without the folder that all of them share."""
        root = str(self.root)
        return "." if text == root else text.replace(f"{root}/", "")

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == severity]

    @property
    def declined(self) -> dict[str, str]:
        """Return the official tools that have nothing to check here, and the reasons."""
        return {tool: why for one in self.sets if self.kind == "runs" for tool, why in inapplicable(one).items()}


@dataclass(frozen=True)
class Review:
    """The reviewed subjects, and the time that the review took."""

    subjects: tuple[SubjectReview, ...]
    seconds: float
    sandbox: str = ""
    """Line that says what the official tools could not reach, and how many were not asked again."""

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of its subjects; rejected if there is none."""
        verdicts = {subject.verdict for subject in self.subjects}
        return next((one for one in WORST_FIRST if one in verdicts), "rejected")

    @property
    def passed(self) -> bool:
        return bool(self.subjects) and all(subject.passed for subject in self.subjects)


def review(paths: Sequence[Path], ruleset: str | None = None, references: ReferenceChoice = USUAL_REFERENCES) -> Review:
    """Review result files, folders of them and packages.

    Raises InputError for a path without results, a ruleset without the benchmark and a file without valid custom
    reference points; faults in the files are findings.
    """
    started = time.perf_counter()
    if references.custom is not None:
        custom_points(references.custom)
    subjects = find_subjects(paths, ruleset, references)
    with tool_process(usual_folder()) as tools, progress("official checkers", len(subjects), "results") as done:
        checked, sandbox = run_checkers(subjects, tools, lambda: done(1)), tools.account
    reviews = [subject_review(subject, checks) for subject, checks in zip(subjects, checked, strict=True)]
    return Review(with_copies(reviews), time.perf_counter() - started, sandbox)


def with_copies(subjects: Sequence[SubjectReview]) -> tuple[SubjectReview, ...]:
    """Return the reviews, with an error for every run that also stands in another package of the same folder.

    Packages of other folders are other rounds, whose logs may be submitted again; loose runs may be those that a
    package was made from.
    """
    runs = {one.path: [run for each in one.sets for run in each.runs] for one in subjects if one.kind == "package"}
    reviews = []
    for one in subjects:
        path = Path(one.path)
        beside = (other for other in runs if other != one.path and Path(other).parent == path.parent)
        others = [run for other in beside for run in runs[other]]
        if one.kind == "package" and others:
            found = quoted(merged(apply(ROUND_RULES, (runs[one.path], others), path)))
            one = replace(one, findings=_worst_first((*one.findings, *found)))
        reviews.append(one)
    return tuple(reviews)


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def own_findings(subject: Subject) -> tuple[Finding, ...]:
    """Return the findings of our own rules, errors first; no process is started.

    A finding stands once per system, with its line; findings that only follow from another are left out.
    """
    found: list[Finding] = []
    for one in _sets(subject):
        mine = [finding for run in one.runs for finding in apply(LOG_RULES, run, run.log.path)]
        mine += apply(SET_RULES, one, one.path)
        found += merged(without_consequences(mine, (*LOG_RULES, *SET_RULES)))
    if isinstance(subject, SubmissionPackage):
        found += merged(apply(PACKAGE_RULES, subject, subject.path))
    return _worst_first(quoted(found))


def subject_review(subject: Subject, checks: Sequence[ToolVerdict]) -> SubjectReview:
    """Return the review of a subject: findings of our own rules, the score, and the results of the official tools.

    A fault of ours in the review of one subject becomes an error of this subject, and the others are still reviewed.
    """
    kind: Literal["package", "runs"] = "package" if isinstance(subject, SubmissionPackage) else "runs"
    bare = SubjectReview(kind, str(subject.path), subject.ruleset, tuple(checks), (), (), ())
    try:
        sets, findings = _sets(subject), own_findings(subject)
        scores = tuple(score(one) for one in sets)
        return replace(bare, checks=excused(checks, sets, findings), findings=findings, sets=sets, scores=scores)
    except Exception as error:
        return replace(bare, findings=(stopped("the review", error, subject.path),))


def excused(
    checks: Iterable[ToolVerdict], sets: Sequence[ResultSet], findings: Sequence[Finding]
) -> tuple[ToolVerdict, ...]:
    """Return the checks, with those excused that fail on something that a round accepts.

    The one run of a result that was aborted need not comply: the package checker accepts it as the slowest
    (docs/facts/mlperf_review.md 4.3). The repository checker refuses names in the code that the round accepted, which
    are notes of our rule about files.
    """
    found = tuple(checks)
    why = {}
    for one in sets:
        names = [str(path) for path in one.files]
        wrong = [each for each in found if each.tool == COMPLIANCE.name and each.subject in names and not each.passed]
        aborted = {str(run.log.path) for run in one.runs if run.was_aborted}
        if len(names) == one.judged.runs and len(wrong) == 1 and wrong[0].subject in aborted:
            allowed = f"this run does not comply, which is allowed to {one.judged.one_of}"
            why[COMPLIANCE.name, wrong[0].subject] = f"{Path(wrong[0].subject).name}: {allowed}"
    if {one.severity for one in findings if one.rule == "package.files"} == {"note"}:
        why |= {
            (REPOSITORY.name, each.subject): "the round accepted the names that this checker refuses" for each in found
        }
    return tuple(
        replace(each, outcome="excused", notes=(*each.notes, why[each.tool, each.subject]))
        if each.outcome == "failed" and (each.tool, each.subject) in why
        else each
        for each in found
    )


def _sets(subject: Subject) -> tuple[ResultSet, ...]:
    return tuple(subject.sets) if isinstance(subject, SubmissionPackage) else (subject,)
