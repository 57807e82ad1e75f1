"""Every package and set of runs below some folders, each reviewed by itself: a broken one ends nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmark.results.mllog import read_log
from benchmark.results.printable import shortened
from benchmark.results.subjects import RESULT_FILES, find_subjects, is_package, subfolders
from benchmark.results_table.row_facts import SystemFacts
from benchmark.review.verdict import Review, review, subject_review, with_copies
from stage.errors import InputError
from stage.regular_files import is_regular

DEEPEST = 3
"""Folders below a given one in which packages are looked for: rounds, and folders of rounds."""
MOST_PROBLEM = 300
Reviewing = Callable[[Sequence[Path], str | None], Review]


@dataclass(frozen=True)
class ReviewedPlace:
    """A package, or runs that lie in none."""

    path: Path
    """The package; of loose runs the first path."""
    review: Review | None
    """None where it could not be reviewed."""
    problem: str | None = None
    """Why not."""

    @property
    def systems(self) -> Sequence[SystemFacts]:
        subjects = () if self.review is None else self.review.subjects
        return [
            SystemFacts(subject, one, scored)
            for subject in subjects
            for one, scored in zip(subject.sets, subject.scores, strict=True)
        ]


def review_places(paths: Sequence[Path], ruleset: str | None = None) -> list[ReviewedPlace]:
    """Review each package below ``paths`` by itself, and together all paths that are none and hold none.

    Raises InputError for a path without results. What is wrong with a package of a round is its ``problem``.
    """
    return _each(paths, ruleset, review)


def read_places(paths: Sequence[Path], ruleset: str | None = None) -> list[ReviewedPlace]:
    """The same with our own rules alone: no official checker is started. Its ``checks`` are empty."""
    return _each(paths, ruleset, _by_own_rules)


def _each(paths: Sequence[Path], ruleset: str | None, reviewing: Reviewing) -> list[ReviewedPlace]:
    packages, loose = places_below(paths)
    given = {path.absolute() for path in paths}
    together = [ReviewedPlace(loose[0], reviewing(loose, ruleset))] if loose else []
    return together + _with_copies([_reviewed(place, place in given, ruleset, reviewing) for place in packages])


def _with_copies(places: Sequence[ReviewedPlace]) -> list[ReviewedPlace]:
    """What packages have in common, of which none tells by itself."""
    reviews = [place.review for place in places if place.review is not None]
    told = iter(with_copies([subject for found in reviews for subject in found.subjects]))
    return [
        place
        if place.review is None
        else replace(place, review=replace(place.review, subjects=tuple(next(told) for _ in place.review.subjects)))
        for place in places
    ]


def _by_own_rules(paths: Sequence[Path], ruleset: str | None) -> Review:
    return Review(tuple(subject_review(subject, ()) for subject in find_subjects(paths, ruleset)), 0.0)


def require_a_log(paths: Sequence[Path]) -> None:
    """Raises InputError where all that is named are files, and none is a log; one of several that is none has a row."""
    if paths and all(is_regular(path) and not read_log(path).events for path in paths):
        more = f", nor in {len(paths) - 1} more files" if len(paths) > 1 else ""
        raise InputError(f"{paths[0]}: no MLLOG record in it{more}; name result files, folders of runs or packages")


def places_below(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The packages at and below all paths, and the paths without any; each once. Raises InputError for no paths."""
    if not paths:
        raise InputError("no results given; name folders of runs, packages or rounds (see --help)")
    below = {path.absolute(): list(_packages_below(path.absolute(), DEEPEST)) for path in paths}
    packages = [package for found in below.values() for package in found]
    return list(dict.fromkeys(packages)), [path for path, found in below.items() if not found]


def _packages_below(path: Path, depth: int) -> Iterator[Path]:
    """The packages at and below a folder; those of a round before anything deeper."""
    try:
        if is_package(path):
            yield path
        elif depth > 0 and path.is_dir() and not any(path.glob(RESULT_FILES)):
            for child in subfolders(path):
                yield from _packages_below(child, depth - 1)
    except OSError:  # a folder that cannot be read has no packages to tell of
        return


def _reviewed(place: Path, given: bool, ruleset: str | None, reviewing: Reviewing) -> ReviewedPlace:
    try:
        return ReviewedPlace(place, reviewing([place], ruleset))
    except InputError as error:
        if given:
            raise
        problem = str(error)
    except Exception as error:  # one package, whatever it holds, must not hide the others of its round
        problem = f"the review failed: {type(error).__name__}: {error}"
    return ReviewedPlace(place, None, shortened(problem, MOST_PROBLEM))
