"""Rounds of made-up packages, reviewed by our rules alone: what needs no official tool does not wait for them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmark.results.convergence import USUAL_REFERENCES, ReferenceChoice
from benchmark.results.subjects import find_subjects
from benchmark.results_table import reviewed_places
from benchmark.review.verdict import Review, subject_review
from tests.benchmark.review.fixture import write_package
from tests.benchmark.review.reviews import verdict


def own_review(
    paths: Sequence[Path], ruleset: str | None = None, references: ReferenceChoice = USUAL_REFERENCES
) -> Review:
    """What our own rules say; the official tools are to have passed."""
    return Review(tuple(subject_review(one, [verdict()]) for one in find_subjects(paths, ruleset, references)), 0.0)


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
