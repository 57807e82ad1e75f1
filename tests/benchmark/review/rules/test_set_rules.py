"""What runs have in common; the errors are in the table of damages."""

from pathlib import Path

import pytest

from benchmark.results.run_summary import RunSummary
from benchmark.review.rules import set_rules
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records, summary_of
from tests.benchmark.review.trials.told import rule_tests


def run_of(number: int, **values: object) -> RunSummary:
    log = Log(records(number))
    for key, value in values.items():
        log.set(key, value)
    return summary_of(log.records, Path(f"result_{number}.txt"))


def test_names_that_differ_are_a_warning() -> None:
    runs = [run_of(1), run_of(2, submission_org="PLACEHOLDER"), run_of(3)]
    (at,) = set_rules.same_names(runs)
    assert (at.path.name, at.line, at.found) == ("result_2.txt", 4, "submission_org 'PLACEHOLDER'")
    assert at.due == "'ACME' as in result_1.txt"
    assert list(set_rules.same_settings(runs)) == []


def test_runs_at_once_are_noted() -> None:
    early = Log(records(2))
    early.shift(0, -9_900_000)
    (at,) = set_rules.not_at_once([summary_of(early.records, Path("b")), run_of(1)])
    assert (at.path, at.line, at.found) == (Path("b"), 26, "started before result_1.txt stopped")
    assert list(set_rules.not_at_once([run_of(1), run_of(2)])) == []


def aborted(seed: int, evaluations: int = 24) -> RunSummary:
    log = Log(records(seed, evaluations=evaluations))
    log.set("eval_accuracy", 2.6931, -1)
    log.metadata("run_stop", status="aborted")
    return summary_of(log.records, Path(f"aborted_{seed}"))


def test_one_honest_run_of_three_may_fail() -> None:
    runs = [run_of(1), run_of(2), aborted(3, evaluations=26)]
    assert list(set_rules.enough_converged(runs)) == []
    (told,) = set_rules.one_failed(runs)
    assert (told.path, told.found) == (Path("aborted_3"), "did not converge, the one of three that may")
    assert list(set_rules.stopped_early(runs)) == []
    two = [run_of(1), aborted(2), aborted(3)]
    assert [at.found for at in set_rules.enough_converged(two)] == ["did not converge, one of 2"] * 2
    assert list(set_rules.one_failed(two)) == []


def test_failed_run_alone_is_no_result() -> None:
    assert [at.due for at in set_rules.enough_converged([aborted(1)])] == ["at most one of three"]


def test_failed_run_that_was_stopped_before_the_others_met_the_target() -> None:
    (told,) = set_rules.stopped_early([run_of(1), run_of(2), aborted(3, evaluations=20)])
    assert told.found == "aborted at 1,006,632,960 tokens"
    assert told.due == "at least 1,207,959,552, where another run met the target"


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ((7, 8, 9), 1),
        ((9, 8, 7), 1),
        ((100, 200, 300), 1),
        ((1, 2, 4), 1),
        ((5, 90, 7), 0),
        ((5, 5, 5), 0),
        ((1, 2), 0),
    ],
)
def test_seeds_that_were_not_drawn(seeds: tuple[int, ...], told: int) -> None:
    assert len(list(set_rules.seed_sequence([run_of(seed, seed=seed) for seed in seeds]))) == told


FOUND = (
    ("runs.speeds", "two of three runs a fifth faster, as on a larger system", "in result_2.txt"),
    (
        "runs.source",
        "evaluations logged by a script of another name in one run",
        "logged by fix_logs.py:12",
    ),
    ("runs.source", "the code's lines differ from run to run", "logged by train.py:"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
