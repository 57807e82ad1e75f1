"""Everything below some folders as reviewed: packages and sets of runs, of which a broken one ends nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmark.results.mllog import read_log
from benchmark.results.printable import shortened
from benchmark.results.score import Score
from benchmark.results.subjects import RESULT_FILES, ResultSet, find_subjects, is_package, subfolders
from benchmark.review.findings import Finding, Severity
from benchmark.review.verdict import SubjectReview, Verdict, review, subject_review, with_copies
from stage.errors import InputError
from stage.regular_files import is_regular

DEEPEST = 3
"""Folders below a given one in which packages are looked for: rounds, and folders of rounds."""
MOST_PROBLEM = 300
Reviewing = Callable[[Sequence[Path]], Sequence[SubjectReview]]


@dataclass(frozen=True)
class ReviewedSystem:
    """One system of a package, or loose runs that belong together."""

    subject: SubjectReview
    result_set: ResultSet
    score: Score

    @property
    def round(self) -> str:
        """The round whose rules judge it, such as 4.1."""
        return self.result_set.ruleset.rpartition(".")[0]

    @property
    def verdict(self) -> Verdict:
        """Rejected with its package; with questions where some were found in it, whatever its neighbours have."""
        if self.findings("error") or not self.subject.passed:
            return "rejected"
        return "acceptable with questions" if self.findings("warning") else "acceptable"

    def findings(self, severity: Severity) -> list[Finding]:
        """Return what was found in its runs, its folder and its description."""
        return [one for one in self.subject.of(severity) if self.subject.kind == "runs" or self._is_mine(one)]

    def _is_mine(self, finding: Finding) -> bool:
        found, folder = Path(finding.path), self.result_set.folder
        inside = folder is not None and (found == folder or folder in found.parents or found == folder.parent)
        return inside or found == self.result_set.system_path


@dataclass(frozen=True)
class Judgement:
    """The reviews of several packages and sets of runs, perhaps of several rounds."""

    subjects: Sequence[SubjectReview]
    unreviewed: Sequence[tuple[Path, str]] = ()
    """Packages that could not be reviewed, and why."""

    @cached_property
    def systems(self) -> list[ReviewedSystem]:
        """The best score first; those without a score last, in the order in which they were given."""
        found = [
            ReviewedSystem(subject, one, scored)
            for subject in self.subjects
            for one, scored in zip(subject.sets, subject.scores, strict=True)
        ]
        return sorted(found, key=lambda one: (one.score.minutes is None, one.score.minutes or 0.0))

    @property
    def problems(self) -> list[tuple[Path, str]]:
        """Packages that could not be reviewed, or hold nothing to review, and why."""
        empty = [(Path(subject.path), "no results of gpt3 in it") for subject in self.subjects if not subject.sets]
        return [*self.unreviewed, *empty]

    @property
    def passed(self) -> bool:
        return bool(self.systems) and not self.problems and all(subject.passed for subject in self.subjects)

    @property
    def rulesets(self) -> list[str]:
        return sorted({subject.ruleset for subject in self.subjects})

    @property
    def score(self) -> Score | None:
        """That of all runs, where they are those of one system."""
        return self.systems[0].score if len(self.systems) == 1 else None


def judge(paths: Sequence[Path], ruleset: str | None = None, *, official: bool = True) -> Judgement:
    """Review each package below ``paths`` by itself, and together all paths that neither are packages nor hold any.

    ``official``: run the official checkers, too. A package of a round that cannot be reviewed is among the problems.
    Raises InputError for no paths, a path without results, and files of which none is a log.
    """

    def reviewing(places: Sequence[Path]) -> Sequence[SubjectReview]:
        if official:
            return review(places, ruleset).subjects
        return [subject_review(subject, ()) for subject in find_subjects(places, ruleset)]

    if not paths:
        raise InputError("no results given; name result files, folders of runs, packages or rounds (see --help)")
    _require_a_log(paths)
    below = {path.absolute(): list(_packages_below(path.absolute(), DEEPEST)) for path in paths}
    loose = [path for path, found in below.items() if not found]
    subjects = list(reviewing(loose)) if loose else []
    unreviewed: list[tuple[Path, str]] = []
    for package in dict.fromkeys(package for found in below.values() for package in found):
        reviewed = _reviewed(package, package in below, reviewing)
        if isinstance(reviewed, str):
            unreviewed.append((package, reviewed))
        else:
            subjects += reviewed
    return Judgement(with_copies(subjects), unreviewed)


def _require_a_log(paths: Sequence[Path]) -> None:
    """Raise InputError where all that is named are files, and none is a log."""
    if all(is_regular(path) and not read_log(path).events for path in paths):
        more = f", nor in {len(paths) - 1} more files" if len(paths) > 1 else ""
        raise InputError(f"{paths[0]}: no MLLOG record in it{more}; name result files, folders of runs or packages")


def _packages_below(path: Path, depth: int) -> Iterator[Path]:
    """Yield the packages at and below a folder; those of a round before anything deeper."""
    try:
        if is_package(path):
            yield path
        elif depth > 0 and path.is_dir() and not any(path.glob(RESULT_FILES)):
            for child in subfolders(path):
                yield from _packages_below(child, depth - 1)
    except OSError:  # a folder that cannot be read has no packages to tell of
        return


def _reviewed(package: Path, given: bool, reviewing: Reviewing) -> Sequence[SubjectReview] | str:
    """Return the review of a package, or why there is none. Raises InputError where the user gave the package."""
    try:
        return reviewing([package])
    except InputError as error:
        if given:
            raise
        problem = str(error)
    except Exception as error:  # one package, whatever it holds, must not hide the others of its round
        problem = f"the review failed: {type(error).__name__}: {error}"
    return shortened(problem, MOST_PROBLEM)
