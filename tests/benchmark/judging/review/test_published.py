"""Published logs of GPT-3 and Llama 3.1: the official verdict and the published times, and no error of our own."""

import os
import re
from pathlib import Path

import pytest

from benchmark.judging.results.judged import OFFICIAL
from benchmark.judging.results.subjects import ResultSet, find_subjects
from benchmark.judging.review.verdict import review, subject_review
from tests.benchmark.judging.review.reviews import official_checks
from tests.support import REPOSITORY

SHARED = REPOSITORY.parent / "shared" / "real_logs"
MORE = Path(os.environ.get("PUBLISHED_LOGS", "/nowhere"))
ROUND = re.compile(r"(?:training_results_)?v(\d\.\d)")
ROUNDS = [folder for root in (SHARED, MORE) for folder in sorted(root.glob("*")) if ROUND.fullmatch(folder.name)]
FOLDERS = [folder for one in ROUNDS for folder in sorted(one.glob("*/results/*/gpt3"))]
PACKAGES = sorted(
    {
        folder.parents[2]
        for name in OFFICIAL
        for one in ROUNDS
        if MORE in one.parents
        for folder in one.glob(f"*/results/*/{name}")
    }
)
ROW = re.compile(r"(?m)^\| (\d\.\d) \| (\S+) / (\S+) \|.*?\| ([\d., ]+) \| [\d, ]+ evals")
MOST = ((False, 40), (True, 80))
"""Questions about the packages of GPT-3 and about those of Llama 3.1."""
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FOLDERS, reason="../shared/real_logs is not there")]
"""PUBLISHED_LOGS: a folder of training_results_v3.0 … v5.1, to check all that are there."""


def published_minutes() -> dict[tuple[str, str], list[float]]:
    """Round and ORG/SYSTEM to the times of published_results.md."""
    rows = ROW.findall((SHARED / "published_results.md").read_text())
    return {(name, f"{org}/{system}"): [float(time) for time in times.split(",")] for name, org, system, times in rows}


def test_published_logs_pass_with_the_published_times() -> None:
    """Let the official tools see one of them: they passed them all before they were published."""
    published, sets = published_minutes(), find_subjects(FOLDERS, None)
    assert len(published) == 40
    assert len(sets) == len(FOLDERS)
    checks = official_checks(next(one for one in sets if isinstance(one, ResultSet) and len(one.files) == 3))
    assert [check.tool for check in checks] == ["compliance"] * 3 + ["seed", "RCP"]
    for subject in (subject_review(one, checks) for one in sets):
        assert all(check.passed for check in subject.checks), subject
        assert subject.of("error") == [], subject.path
        system = Path(subject.path if not subject.path.endswith(".txt") else Path(subject.path).parent).parent
        name = f"{system.parents[1].name}/{system.name}"
        round_ = ROUND.sub(r"\1", system.parents[2].name)
        assert subject.ruleset == f"{round_}.0"
        minutes = [run.minutes or 0 for run in subject.scores[0].runs]
        for value in minutes:
            assert any(abs(value - time) < 0.0051 for time in published.get((round_, name), [value])), (name, value)
        if len(minutes) == 3:
            assert subject.scores[0].measured_minutes == pytest.approx(sorted(minutes)[1])


@pytest.mark.skipif(not PACKAGES, reason="PUBLISHED_LOGS is not set")
def test_scores_are_those_of_the_official_summarizer_on_packages_as_they_were_published() -> None:
    """All of them are accepted as they were, with few questions."""
    found = review(PACKAGES)
    for newer, most in MOST:
        questions = [len(one.of("warning")) for one in found.subjects if (one.ruleset > "5") == newer]
        assert sum(questions) <= most
    for subject in found.subjects:
        assert subject.passed, subject.path
        (official,) = [check.scores for check in subject.checks if check.tool == "summarizer"]
        minutes = {f"{one.name}/{one.benchmark}": one.minutes for one in subject.scores}
        assert minutes == pytest.approx({name: row["time_to_train"] for name, row in official.items()}), subject.path
