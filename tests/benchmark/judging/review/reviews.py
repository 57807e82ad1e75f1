"""Reviews without the official tools, for what prints and writes them, and one official tool without a review."""

from collections.abc import Sequence
from pathlib import Path

from benchmark.judging.results.subjects import ResultSet, Subject, find_subjects
from benchmark.judging.review.official.official_checkers import run_checkers
from benchmark.judging.review.official.tool_process import tool_process
from benchmark.judging.review.official.tool_verdicts import ToolVerdict
from benchmark.judging.review.verdict import Review, subject_review


def verdict(*complaints: str, notes: tuple[str, ...] = ()) -> ToolVerdict:
    return ToolVerdict("compliance", "/x/result_0.txt", "failed" if complaints else "passed", complaints, notes, 0.5)


def review_of(paths: Sequence[Path], *checks: ToolVerdict) -> Review:
    """Return what our own rules and score say, as if the official tools had said ``checks``."""
    found = find_subjects(paths, "4.1.0")
    return Review(tuple(subject_review(one, checks or (verdict(),)) for one in found), 1.25)


def check_file(path: Path, ruleset: str) -> ToolVerdict:
    """Return the compliance checker's result for one result file."""
    (check,) = official_checks(ResultSet(path.name, ruleset, (path,), None))
    return check


def official_checks(subject: Subject) -> list[ToolVerdict]:
    """Return the results of all official tools for one subject."""
    with tool_process() as tools:
        (checks,) = run_checkers([subject], tools)
    return checks
