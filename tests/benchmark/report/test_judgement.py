"""The review of a report's runs."""

from pathlib import Path

from benchmark.report.judgement import Judgement
from benchmark.results_table.reviewed_places import ReviewedPlace
from tests.benchmark.results_table.places import own_review
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import SYSTEM, records, write_package, write_run


def judgement_of(*paths: Path) -> Judgement:
    return Judgement([ReviewedPlace(paths[0], own_review(paths))])


def test_runs_of_one_system_have_a_score(tmp_path: Path) -> None:
    results = write_package(tmp_path) / "results" / SYSTEM / "gpt3"
    found = judgement_of(results)
    assert (found.passed, found.rulesets) == (True, ["4.1.0"])
    assert found.score is found.systems[0].score
    assert found.not_applicable == ["package", "repository", "summarizer", "system description"]
    assert [check.tool for check in found.checks] == ["compliance"]


def test_runs_of_several_systems_have_each_their_own(tmp_path: Path) -> None:
    log = Log(records(1, batch_size=1536))
    log.set("opt_learning_rate_warmup_steps", 264)
    log.set("opt_name", "adamw")
    found = judgement_of(write_run(tmp_path / "a", records(2)), write_run(tmp_path / "b", log.records))
    assert (found.score, found.passed) == (None, False)
    assert [one.score.batch_size for one in found.systems] == [2048, 1536]
    assert found.findings[0].severity == "error"
    assert [one.severity for one in found.findings] == sorted(one.severity for one in found.findings)


def test_what_could_not_be_reviewed_is_a_problem(tmp_path: Path) -> None:
    good = ReviewedPlace(tmp_path / "GOOD", own_review([write_package(tmp_path)]))
    bad, empty = ReviewedPlace(tmp_path / "BAD", None, "broken"), ReviewedPlace(tmp_path / "EMPTY", None)
    found = Judgement([good, bad, empty])
    assert found.problems == [(tmp_path / "BAD", "broken"), (tmp_path / "EMPTY", "no results of gpt3 in it")]
    assert found.passed is False
    assert Judgement([good]).passed is True
    assert Judgement([]).passed is False
