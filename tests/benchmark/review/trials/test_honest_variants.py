"""What honest submitters do is not rejected, and restarts are one question. On published systems, made anew:
``python -m tests.speed.trials``."""

from pathlib import Path

import pytest

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.verdict import own_findings
from tests.benchmark.review.trials import (
    honest_conventions,
    honest_folders,
    honest_records,
    honest_restarts,
    honest_runs,
)
from tests.benchmark.review.trials.submission_on_trial import made_up, with_steps
from tests.benchmark.review.trials.trial_table import Trial

RESTARTS = honest_restarts.honest.trials
TABLES = (honest_runs, honest_records, honest_folders, honest_conventions)
HONEST = [*RESTARTS, *(one for table in TABLES for one in table.honest.trials)]


def test_there_are_many_and_each_has_a_name() -> None:
    assert len(HONEST) >= 60
    assert len({one.name for one in HONEST}) == len(HONEST)


@pytest.mark.parametrize("trial", HONEST, ids=lambda one: one.name)
def test_honest_submission_has_no_error(trial: Trial, tmp_path: Path) -> None:
    one = made_up() if not trial.bases or "made" in trial.bases else with_steps()
    trial.change(one)
    found = own_findings(SubmissionPackage(one.write(tmp_path), "4.1.0"))
    assert [(one.rule, one.found) for one in found if one.severity == "error"] == []
    questions = [one.rule for one in found if one.severity == "warning"]
    assert len(questions) <= 1, questions
    if trial in RESTARTS:
        assert questions in ([], ["runs.lost_time"])
