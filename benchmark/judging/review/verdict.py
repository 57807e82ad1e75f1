"""Run ``review``: apply the official checkers and our own rules to results and packages, and reach a verdict."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchmark.judging.results.convergence import USUAL_REFERENCES, ReferenceChoice, custom_points
from benchmark.judging.results.score import Score, score
from benchmark.judging.results.subjects import ResultSet, Subject, SubmissionPackage, find_subjects
from benchmark.judging.review.findings import (
    Finding,
    Run,
    Severity,
    apply,
    merged,
    quoted,
    stopped,
    without_consequences,
)
from benchmark.judging.review.official.official_checkers import (
    COMPLIANCE,
    REPOSITORY,
    inapplicable,
    inapplicable_to_rehearsals,
    run_checkers,
)
from benchmark.judging.review.official.stored_runs import usual_folder
from benchmark.judging.review.official.tool_process import tool_process
from benchmark.judging.review.official.tool_verdicts import ToolVerdict
from benchmark.judging.review.rules.copy_rules import RoundRuns, round_copies
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
    is_rehearsal: bool = False
    """Whether it is the package of a rehearsal, which is no submission."""

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
    def runs(self) -> list[Run]:
        return [run for results in self.sets for run in results.runs]

    @property
    def root(self) -> Path:
        """Return the folder from which paths are shown: the package, or the common folder of all runs' files."""
        path = Path(self.path)
        return path.parent if any(path in results.files for results in self.sets) else path

    def near(self, text: str) -> str:
        """Return a path, or a text with paths, without the folder that all of them share."""
        root = str(self.root)
        return "." if text == root else text.replace(f"{root}/", "")

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == severity]

    def of_system(self, results: ResultSet, severity: Severity) -> list[Finding]:
        """Return the findings in a system's runs, folder and description; if it is the only one, all findings."""
        return [finding for finding in self.of(severity) if len(self.sets) == 1 or _is_of(finding, results)]

    def of_package(self, severity: Severity) -> list[Finding]:
        """Return the findings that belong to none of several systems."""
        findings = self.of(severity) if len(self.sets) > 1 else []
        return [finding for finding in findings if not any(_is_of(finding, results) for results in self.sets)]

    def verdict_of(self, results: ResultSet) -> Verdict:
        """Return the verdict of a system: rejected with its package, or with questions if it raises some itself."""
        if self.of_system(results, "error") or not self.passed:
            return "rejected"
        return "acceptable with questions" if self.of_system(results, "warning") else "acceptable"

    @property
    def declined(self) -> dict[str, str]:
        """Return the official tools that have nothing to check here, and the reasons."""
        if self.is_rehearsal:
            return inapplicable_to_rehearsals()
        return {
            tool: why for results in self.sets if self.kind == "runs" for tool, why in inapplicable(results).items()
        }


def _is_of(finding: Finding, results: ResultSet) -> bool:
    path, folder = Path(finding.path), results.folder
    is_inside = folder is not None and (path == folder or folder in path.parents or path == folder.parent)
    return is_inside or path == results.system_path


@dataclass(frozen=True)
class Review:
    """The reviewed subjects, and the time that the review took."""

    subjects: tuple[SubjectReview, ...]
    seconds: float
    sandbox: str = ""
    """Line that says from which resources the official tools were kept, and how many outcomes were stored ones."""

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of its subjects; rejected if there is none."""
        verdicts = {subject.verdict for subject in self.subjects}
        return next((verdict for verdict in WORST_FIRST if verdict in verdicts), "rejected")

    @property
    def passed(self) -> bool:
        return bool(self.subjects) and all(subject.passed for subject in self.subjects)


def review(paths: Sequence[Path], ruleset: str | None = None, references: ReferenceChoice = USUAL_REFERENCES) -> Review:
    """Review result files, folders of them and packages.

    Raises InputError for a path without results, a ruleset without the benchmark and a file without valid custom
    reference points; faults in the files are findings.
    """
    if references.custom is not None:
        custom_points(references.custom)
    return review_of(find_subjects(paths, ruleset, references))


def review_of(subjects: Sequence[Subject]) -> Review:
    """Review these subjects."""
    started = time.perf_counter()
    with tool_process(usual_folder()) as tools, progress("official checkers", len(subjects), "results") as done:
        checked, sandbox = run_checkers(subjects, tools, lambda: done(1)), tools.account
    reviews = [subject_review(subject, checks) for subject, checks in zip(subjects, checked, strict=True)]
    return Review(with_copies(reviews), time.perf_counter() - started, sandbox)


def with_copies(subjects: Sequence[SubjectReview]) -> tuple[SubjectReview, ...]:
    """Return the reviews, with an error for every run that also stands in another package of the same folder.

    Packages of other folders are other rounds, whose logs may be submitted again; loose runs may be those that a
    package was made from.
    """
    by_folder: dict[Path, list[SubjectReview]] = {}
    for subject in subjects:
        if subject.kind == "package":
            by_folder.setdefault(Path(subject.path).parent, []).append(subject)
    copied: dict[Path, tuple[str, Path]] = {}
    for packages in by_folder.values():
        copied |= round_copies([subject.runs for subject in packages])
    return tuple(_with_copies_of(subject, copied) for subject in subjects)


def _with_copies_of(subject: SubjectReview, copied: Mapping[Path, tuple[str, Path]]) -> SubjectReview:
    if subject.kind != "package":
        return subject
    findings = quoted(merged(apply(ROUND_RULES, RoundRuns(copied, subject.runs), Path(subject.path))))
    return replace(subject, findings=_worst_first((*subject.findings, *findings)))


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def own_findings(subject: Subject) -> tuple[Finding, ...]:
    """Return the findings of our own rules, errors first; no process is started.

    A finding stands once per system, with its line; findings that only follow from another are left out.
    """
    findings: list[Finding] = []
    for results in _sets(subject):
        of_set = [finding for run in results.runs for finding in apply(LOG_RULES, run, run.log.path)]
        of_set += apply(SET_RULES, results, results.path)
        findings += merged(without_consequences(of_set, (*LOG_RULES, *SET_RULES)))
    if isinstance(subject, SubmissionPackage):
        findings += merged(apply(PACKAGE_RULES, subject, subject.path))
    return _worst_first(quoted(findings))


def subject_review(subject: Subject, checks: Sequence[ToolVerdict]) -> SubjectReview:
    """Return the review of a subject: findings of our own rules, the score, and the results of the official tools.

    A fault of ours in the review of one subject becomes an error of this subject, and the others are still reviewed.
    """
    kind: Literal["package", "runs"] = "package" if isinstance(subject, SubmissionPackage) else "runs"
    is_rehearsal = isinstance(subject, SubmissionPackage) and subject.rehearsal is not None
    bare = SubjectReview(kind, str(subject.path), subject.ruleset, tuple(checks), (), (), (), is_rehearsal)
    try:
        sets, findings = _sets(subject), own_findings(subject)
        scores = tuple(score(results) for results in sets)
        return replace(bare, checks=excused(checks, sets, findings), findings=findings, sets=sets, scores=scores)
    except Exception as error:
        return replace(bare, findings=(stopped("the review", error, subject.path),))


def excused(
    checks: Sequence[ToolVerdict], sets: Sequence[ResultSet], findings: Sequence[Finding]
) -> tuple[ToolVerdict, ...]:
    """Return the checks, with those excused that fail on something that a round accepts.

    The one run of a result that was aborted need not comply: the package checker accepts it as the slowest
    (docs/facts/mlperf_review.md 4.3). The repository checker refuses names in the code that the round accepted, which
    are notes of our rule about files.
    """
    reasons = {}
    for results in sets:
        names = [str(path) for path in results.files]
        failing = [check for check in checks if check.tool == COMPLIANCE.name and check.subject in names]
        failing = [check for check in failing if not check.passed]
        aborted = {str(run.log.path) for run in results.runs if run.was_aborted or run.breaks_off}
        if len(names) == results.judged.runs and len(failing) == 1 and failing[0].subject in aborted:
            allowed = f"this run does not comply, which is allowed to {results.judged.one_of}"
            reasons[COMPLIANCE.name, failing[0].subject] = f"{Path(failing[0].subject).name}: {allowed}"
    if {finding.severity for finding in findings if finding.rule == "package.files"} == {"note"}:
        accepted = "the round accepted the names that this checker refuses"
        reasons |= {(REPOSITORY.name, check.subject): accepted for check in checks}
    return tuple(
        replace(check, outcome="excused", notes=(*check.notes, reasons[check.tool, check.subject]))
        if check.outcome == "failed" and (check.tool, check.subject) in reasons
        else check
        for check in checks
    )


def _sets(subject: Subject) -> tuple[ResultSet, ...]:
    return tuple(subject.sets) if isinstance(subject, SubmissionPackage) else (subject,)
