"""Review everything below some folders, package by package; a broken package does not stop the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmark.results.mllog import read_log
from benchmark.results.score import Score
from benchmark.results.subjects import ResultSet, find_subjects
from benchmark.review.findings import STOPPED, Finding, Severity
from benchmark.review.verdict import SubjectReview, Verdict, review, subject_review
from stage.errors import InputError
from stage.regular_files import is_regular

EMPTY = "no results in it that are reviewed"


@dataclass(frozen=True)
class ReviewedSystem:
    """One system of a package, or loose runs that belong together."""

    subject: SubjectReview
    result_set: ResultSet
    score: Score

    @property
    def round(self) -> str:
        """Return the round by whose rules the system is judged, such as 4.1."""
        return self.result_set.ruleset.rpartition(".")[0]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict: rejected with its package, or with questions if its own review raised some."""
        if self.findings("error") or not self.subject.passed:
            return "rejected"
        return "acceptable with questions" if self.findings("warning") else "acceptable"

    def findings(self, severity: Severity) -> list[Finding]:
        """Return the findings in its runs, its folder and its description."""
        return [one for one in self.subject.of(severity) if self.subject.kind == "runs" or self._is_mine(one)]

    def _is_mine(self, finding: Finding) -> bool:
        found, folder = Path(finding.path), self.result_set.folder
        inside = folder is not None and (found == folder or folder in found.parents or found == folder.parent)
        return inside or found == self.result_set.system_path


@dataclass(frozen=True)
class Judgement:
    """The reviews of several packages and sets of runs, perhaps of several rounds."""

    subjects: Sequence[SubjectReview]

    @cached_property
    def systems(self) -> list[ReviewedSystem]:
        """Return the systems by benchmark, best score first; those without a score come last, in the order given."""
        found = [
            ReviewedSystem(subject, one, scored)
            for subject in self.subjects
            for one, scored in zip(subject.sets, subject.scores, strict=True)
        ]
        return sorted(found, key=lambda one: (one.score.benchmark, one.score.minutes is None, one.score.minutes or 0))

    @property
    def problems(self) -> list[tuple[Path, str]]:
        """Return packages whose review stopped, or that hold nothing to review, and the reasons."""
        return [
            (Path(one.path), next((each.found for each in one.findings if each.rule == STOPPED), EMPTY))
            for one in self.subjects
            if not one.sets
        ]

    @property
    def passed(self) -> bool:
        return bool(self.systems) and not self.problems and all(subject.passed for subject in self.subjects)

    @property
    def rulesets(self) -> list[str]:
        return sorted({subject.ruleset for subject in self.subjects})

    @property
    def score(self) -> Score | None:
        """Return the score of all runs, if they belong to one system."""
        return self.systems[0].score if len(self.systems) == 1 else None


def judge(paths: Sequence[Path], ruleset: str | None = None, *, official: bool = True) -> Judgement:
    """Review everything below ``paths``; with ``official``, run the official checkers, too.

    Raises InputError if there are no paths, for a path without results, and if none of the files is a log.
    """
    if not paths:
        raise InputError("no results given; name result files, folders of runs, packages or rounds (see --help)")
    if all(is_regular(path) and not read_log(path).events for path in paths):
        more = f", nor in {len(paths) - 1} more files" if len(paths) > 1 else ""
        raise InputError(f"{paths[0]}: no MLLOG record in it{more}; name result files, folders of runs or packages")
    if official:
        return Judgement(review(paths, ruleset).subjects)
    return Judgement([subject_review(subject, ()) for subject in find_subjects(paths, ruleset)])
