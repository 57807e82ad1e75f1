"""Rounds of made-up packages, reviewed by our rules alone: what needs no official tool does not wait for them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmark.results.score import score
from benchmark.results.subjects import SubmissionPackage, find_subjects
from benchmark.results_table import reviewed_places
from benchmark.review.verdict import Review, SubjectReview, own_findings
from tests.benchmark.review.fixture import write_package
from tests.benchmark.review.reviews import verdict


def own_review(paths: Sequence[Path], ruleset: str | None = None) -> Review:
    """What our own rules say; the official tools are to have passed."""
    reviews = []
    for one in find_subjects(paths, ruleset):
        sets = tuple(one.sets) if isinstance(one, SubmissionPackage) else (one,)
        kind = "package" if isinstance(one, SubmissionPackage) else "runs"
        path = str(one.path) if isinstance(one, SubmissionPackage) else str(one.folder)
        scores = tuple(score(each) for each in sets)
        reviews.append(SubjectReview(kind, path, one.ruleset, (verdict(),), own_findings(one), sets, scores))  # type: ignore[arg-type]
    return Review(tuple(reviews), 0.0)


def without_official_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewed_places, "review", own_review)


def write_round(folder: Path, names: Sequence[str], spoil: Callable[[Path], object] | None = None) -> Path:
    """A round with a package per name, the first of which may be spoilt."""
    for name in names:
        write_package(folder / "made").rename(folder / name)
    (folder / "made").rmdir()
    if spoil is not None:
        spoil(folder / names[0])
    return folder
