"""Reviews without the official tools, for what prints and writes them."""

from collections.abc import Sequence
from pathlib import Path

from benchmark.results.score import score
from benchmark.results.subjects import ResultSet, find_subjects
from benchmark.review.official_tools import ToolVerdict
from benchmark.review.verdict import Review, SubjectReview, own_findings


def verdict(*complaints: str, notes: tuple[str, ...] = ()) -> ToolVerdict:
    return ToolVerdict("compliance", "/x/result_0.txt", "failed" if complaints else "passed", complaints, notes, 0.5)


def review_of(paths: Sequence[Path], *checks: ToolVerdict) -> Review:
    """What our own rules and score say, and what the official tools are to have said."""
    subjects = []
    for one in find_subjects(paths, "4.1.0"):
        assert isinstance(one, ResultSet)
        path = str(one.folder or one.files[0])
        found = own_findings(one)
        subjects.append(SubjectReview("runs", path, one.ruleset, checks or (verdict(),), found, (one,), (score(one),)))
    return Review(tuple(subjects), 1.25)
