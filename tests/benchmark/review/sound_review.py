"""What must hold of a review of anything: every rule came to its end, and all that is shown is fit to be shown."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmark.results.mllog import parse_log
from benchmark.results.run_summary import RunSummary
from benchmark.results.score import score
from benchmark.results.subjects import ResultSet
from benchmark.review.findings import STOPPED, Finding, apply
from benchmark.review.review_json import review_as_json
from benchmark.review.review_screen import print_review
from benchmark.review.rules.rule_table import SET_RULES
from benchmark.review.verdict import Review, SubjectReview, own_findings
from tests.benchmark.review.fixture import as_text, records
from tests.benchmark.review.reviews import verdict

MOST_SHOWN = 3000
"""Characters of a finding's texts together."""
HONEST = [RunSummary(parse_log(Path(f"result_{number}.txt"), as_text(records(number)).encode())) for number in (5, 6)]


def review_log(content: bytes) -> Review:
    """Our rules, scores, screen and JSON for a set of runs of which one has this log; no official tool, no file."""
    run = RunSummary(parse_log(Path("result_0.txt"), content))
    runs = (run, *HONEST)
    one = ResultSet("x", "4.1.0", [one.log.path for one in runs], None)
    one.__dict__["runs"] = runs
    found = own_findings(one)
    subject = SubjectReview("runs", "x", "4.1.0", (verdict(),), found, (one,), (score(one),))
    return Review((subject,), 1.0)


def assert_sound(review: Review) -> None:
    for subject in review.subjects:
        assert_findings_are_sound(subject.findings)
    out = io.StringIO()
    print_review(review, Console(file=out, width=120, highlight=False, force_terminal=False))
    text = out.getvalue().replace("\n", "")
    assert text.isprintable(), [letter for letter in text if not letter.isprintable()][:9]
    json.loads(json.dumps(review_as_json(review), allow_nan=False))


def assert_findings_are_sound(findings: Sequence[Finding]) -> None:
    for finding in findings:
        assert finding.rule != STOPPED, finding
        assert finding.found, finding
        assert finding.mend or finding.question or finding.severity == "note", finding
        shown = (finding.found, finding.due, finding.mend, finding.text)
        assert sum(map(len, shown)) < MOST_SHOWN, finding


def review_description(path: Path, ruleset: str) -> list[Finding]:
    one = ResultSet("x", ruleset, [run.log.path for run in HONEST], None, path)
    one.__dict__["runs"] = tuple(HONEST)
    score(one)
    return list(apply(SET_RULES, one, path))
