"""What honest submitters do is not rejected; all of it: python -m tests.speed.trials."""

from pathlib import Path

import pytest

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.verdict import own_findings
from tests.benchmark.review.trials.told import CHEATS, HONEST, RULESET, tried

SAMPLE = [one.name for number, one in enumerate(HONEST) if "abort" in one.name or number % 6 == 0]


def test_there_are_many_and_each_has_a_name() -> None:
    assert len(CHEATS) >= 240
    assert len(HONEST) >= 95
    assert len({one.name for one in (*CHEATS, *HONEST)}) == len(CHEATS) + len(HONEST)


@pytest.mark.parametrize("name", SAMPLE)
def test_honest_submission_has_no_error(name: str, tmp_path: Path) -> None:
    found = own_findings(SubmissionPackage(tried(name).write(tmp_path), RULESET))
    assert [(one.rule, one.found) for one in found if one.severity == "error"] == []
