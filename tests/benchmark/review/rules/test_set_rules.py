"""What runs have in common; the errors are in the table of damages."""

from pathlib import Path

from benchmark.results.run_summary import RunSummary
from benchmark.review.rules import set_rules
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records, summary_of


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


def test_one_run_of_three_may_fail() -> None:
    good = run_of(1)
    aborted = Log(records(3))
    aborted.metadata("run_stop", status="aborted")
    bad = summary_of(aborted.records, Path("c"))
    assert list(set_rules.one_may_fail([good, good, bad])) == []
    assert [at.found for at in set_rules.one_may_fail([good, bad, bad])] == ["did not converge, one of 2"] * 2
    assert list(set_rules.one_may_fail([bad, bad])) == []  # two runs are no result yet
