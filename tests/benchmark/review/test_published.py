"""Published logs: the official verdict and the published times, and no error of our own."""

import os
import re
from pathlib import Path

import pytest

from benchmark.review.verdict import Review, review
from tests.support import REPOSITORY

SHARED = REPOSITORY.parent / "shared" / "real_logs"
MORE = Path(os.environ.get("PUBLISHED_LOGS", "/nowhere"))
ROUND = re.compile(r"(?:training_results_)?v(\d\.\d)")
ROUNDS = [folder for root in (SHARED, MORE) for folder in sorted(root.glob("*")) if ROUND.fullmatch(folder.name)]
FOLDERS = [folder for one in ROUNDS for folder in sorted(one.glob("*/results/*/gpt3"))]
PACKAGES = sorted({folder.parents[2] for folder in FOLDERS if MORE in folder.parents})
ROW = re.compile(r"(?m)^\| (\d\.\d) \| (\S+) / (\S+) \|.*?\| ([\d., ]+) \| [\d, ]+ evals")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FOLDERS, reason="../shared/real_logs is not there")]
"""PUBLISHED_LOGS: a folder of training_results_v3.0 … v4.1, to check all that are there."""


def published_minutes() -> dict[tuple[str, str], list[float]]:
    """Round and ORG/SYSTEM to the times of published_results.md."""
    rows = ROW.findall((SHARED / "published_results.md").read_text())
    return {(name, f"{org}/{system}"): [float(time) for time in times.split(",")] for name, org, system, times in rows}


@pytest.fixture(scope="module")
def found() -> Review:
    return review(FOLDERS)


def test_published_logs_pass_with_the_published_times(found: Review) -> None:
    published = published_minutes()
    assert len(published) == 40
    assert len(found.subjects) == len(FOLDERS)
    for subject in found.subjects:
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


@pytest.mark.skipif(not (SHARED / "v4.1").is_dir(), reason="no v4.1")
def test_scaled_score_speed_and_mfu_of_published_results(found: Review) -> None:
    """docs/facts/mlperf_review.md 6.1, 6.3; docs/facts/peers.md 1.1."""
    newest = [subject for subject in found.subjects if subject.ruleset == "4.1.0"]
    scores = {subject.scores[0].name: subject.scores[0] for subject in newest}
    for subject in newest:  # one of the folders may have the logs without what else lies in the package
        if subject.scores[0].name == "cloud-tpu-trillium-1024-maxtext":
            scaled = (Path(subject.path) / "scaling.json").exists()
            assert subject.scores[0].minutes == pytest.approx(50.63 if scaled else 49.76, abs=0.005), subject.path
            assert subject.scores[0].reference_factor == pytest.approx(1.0173913, abs=1e-7)
    eos = scores["eos_n64_ngc24.09_nemo"]
    assert eos.minutes == pytest.approx(49.80, abs=0.005)
    assert eos.accelerators == 512
    assert eos.tokens_per_s_per_accelerator == pytest.approx(790, abs=0.5)
    assert eos.tflops_per_accelerator == pytest.approx(850, abs=0.5)
    b200 = scores["b200_n8_preview_nemo"]
    assert b200.tokens_per_s_per_accelerator == pytest.approx(1624, abs=0.5)
    assert b200.tflops_per_accelerator == pytest.approx(1748, abs=0.5)
    assert b200.mfu == pytest.approx(1748 / 2250, abs=1e-3)


@pytest.mark.skipif(not PACKAGES, reason="PUBLISHED_LOGS is not set")
def test_scores_are_those_of_the_official_summarizer_on_packages_as_they_were_published() -> None:
    """All of them are accepted as they were, with few questions."""
    found = review(PACKAGES)
    assert sum(len(subject.of("warning")) for subject in found.subjects) <= 40
    for subject in found.subjects:
        assert subject.passed, subject.path
        (official,) = [check.scores for check in subject.checks if check.tool == "summarizer"]
        minutes = {one.name: one.minutes for one in subject.scores}
        assert minutes == pytest.approx({name: row["time_to_train"] for name, row in official.items()}), subject.path
