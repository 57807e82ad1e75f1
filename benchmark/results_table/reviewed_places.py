"""Every package and set of runs below some folders, each reviewed by itself: a broken one ends nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.results.printable import shortened
from benchmark.results.subjects import RESULT_FILES, is_package, subfolders
from benchmark.results_table.row_facts import SystemFacts
from benchmark.review.verdict import Review, review
from stage.errors import InputError

DEEPEST = 3
"""Folders below a given one in which packages are looked for: rounds, and folders of rounds."""
MOST_PROBLEM = 300


@dataclass(frozen=True)
class ReviewedPlace:
    """A package, a folder of runs or a result file."""

    path: Path
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
    """Review each package below ``paths``, and each path that is none and holds none.

    Raises InputError for a path without results. What is wrong with a package of a round is its ``problem``.
    """
    given = {path.absolute() for path in paths}
    return [_reviewed(place, place in given, ruleset) for place in places_below(paths)]


def places_below(paths: Sequence[Path]) -> list[Path]:
    """The packages below each path, or the path itself; each once. Raises InputError for no paths."""
    if not paths:
        raise InputError("no results given; name folders of runs, packages or rounds (see --help)")
    found = [list(_packages_below(path.absolute(), DEEPEST)) or [path.absolute()] for path in paths]
    return list(dict.fromkeys(place for places in found for place in places))


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


def _reviewed(place: Path, given: bool, ruleset: str | None) -> ReviewedPlace:
    try:
        return ReviewedPlace(place, review([place], ruleset))
    except InputError as error:
        if given:
            raise
        problem = str(error)
    except Exception as error:  # one package, whatever it holds, must not hide the others of its round
        problem = f"the review failed: {type(error).__name__}: {error}"
    return ReviewedPlace(place, None, shortened(problem, MOST_PROBLEM))
