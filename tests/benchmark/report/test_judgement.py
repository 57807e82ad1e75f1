"""The review of a report's runs."""

from pathlib import Path

from benchmark.report.judgement import Judgement
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import SYSTEM, records, write_package, write_run
from tests.benchmark.review.reviews import review_of, verdict


def judgement_of(*paths: Path) -> Judgement:
    found = review_of(paths, verdict())
    return Judgement(found, [score for subject in found.subjects for score in subject.scores])


def test_runs_of_one_system_have_a_score(tmp_path: Path) -> None:
    results = write_package(tmp_path) / "results" / SYSTEM / "gpt3"
    found = judgement_of(results)
    assert (found.passed, found.rulesets, found.findings) == (True, ["4.1.0"], [])
    assert found.score is found.score_of(results / "result_1.txt") is not None
    assert found.not_applicable == ["package", "repository", "summarizer", "system description"]
    assert [check.tool for check in found.checks] == ["compliance"]


def test_runs_of_several_systems_have_each_their_own(tmp_path: Path) -> None:
    log = Log(records(1, batch_size=1536))
    log.set("opt_learning_rate_warmup_steps", 264)
    log.set("opt_name", "adamw")
    paths = [write_run(tmp_path / "a", records(2)), write_run(tmp_path / "b", log.records)]
    found = judgement_of(*paths)
    assert (found.score, found.passed) == (None, False)
    scores = [found.score_of(path) for path in paths]
    assert [score.batch_size for score in scores if score is not None] == [2048, 1536]
    assert found.score_of(tmp_path) is None
    assert [one.severity for one in found.findings] == ["error", "note"]
