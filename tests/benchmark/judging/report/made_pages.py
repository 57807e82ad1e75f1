"""Judgements and pages of made-up results, by our own rules alone: no official tool is waited for."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmark.judging.report import judgement
from benchmark.judging.report.judgement import Judgement, ReportedRun, judge, reported_runs
from benchmark.judging.report.page_content import make_page
from benchmark.judging.report.page_parts import Page, Table
from benchmark.judging.report.write_report import render
from benchmark.judging.results.subjects import Subject, find_subjects
from benchmark.judging.review.official.tool_verdicts import ToolVerdict
from benchmark.judging.review.verdict import Review, subject_review, with_copies
from tests.benchmark.judging.review.fixture import write_package
from tests.benchmark.judging.review.reviews import verdict


def own_review(
    paths: Sequence[Path], ruleset: str | None = None, *_: object, check: ToolVerdict | None = None
) -> Review:
    """What our own rules say; the official tools are to have passed."""
    return own_review_of(find_subjects(paths, ruleset), check)


def own_review_of(subjects: Sequence[Subject], check: ToolVerdict | None = None) -> Review:
    return Review(with_copies([subject_review(one, [check or verdict()]) for one in subjects]), 0.0)


def judged(paths: Sequence[Path], check: ToolVerdict | None = None) -> Judgement:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judgement, "review", lambda places, ruleset: own_review(places, ruleset, check=check))
        return judge(paths)


def made_page(*paths: Path, check: ToolVerdict | None = None, beside: Path | None = None) -> Page:
    return make_page(judged(paths, check), page_folder=beside)


def write_made(output: Path, paths: Sequence[Path]) -> Path:
    """The page as a file."""
    output.write_text(render(made_page(*paths, beside=output.parent)))
    return output


def made_runs(*paths: Path) -> list[ReportedRun]:
    return reported_runs(judged(paths))


def table(page: Page, label: str) -> Table:
    (found,) = [one for part in page.sections for one in part.parts if isinstance(one, Table) and one.label == label]
    return found


def texts(page: Page, label: str) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in table(page, label).rows]


def write_round(folder: Path, names: Sequence[str], spoil: Callable[[Path], object] | None = None) -> Path:
    """A round with a package per name, the first of which may be spoilt."""
    for name in names:
        write_package(folder / "made").rename(folder / name)
    (folder / "made").rmdir()
    if spoil is not None:
        spoil(folder / names[0])
    return folder
