"""Pages of made-up results, by our own rules alone."""

from collections.abc import Sequence
from pathlib import Path

from benchmark.report.judgement import Judgement
from benchmark.report.page_model import Page
from benchmark.report.reported_run import ReportedRun, reported_runs
from benchmark.report.write_report import ReportOptions, page_of, write_page
from benchmark.results.subjects import find_subjects
from benchmark.results_table.reviewed_places import ReviewedPlace
from benchmark.review.official_tools import ToolVerdict
from benchmark.review.verdict import Review, subject_review
from tests.benchmark.review.reviews import verdict


def judged(paths: Sequence[Path], check: ToolVerdict | None = None) -> Judgement:
    subjects = find_subjects(paths, None)
    review = Review(tuple(subject_review(one, [check or verdict()]) for one in subjects), 0.0)
    return Judgement([ReviewedPlace(paths[0], review)])


def made_page(paths: Sequence[Path], check: ToolVerdict | None = None, beside: Path | None = None) -> Page:
    return page_of(judged(paths, check), ReportOptions(), None, beside)


def write_made(output: Path, paths: Sequence[Path]) -> Path:
    """The page as a file."""
    write_page(made_page(paths, beside=output.parent), output)
    return output


def made_runs(paths: Sequence[Path]) -> list[ReportedRun]:
    return reported_runs(judged(paths))
