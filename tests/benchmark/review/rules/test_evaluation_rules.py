"""Warnings about evaluations, and limits of the errors; the errors are in the table of damages."""

import pytest

from benchmark.review.rules import evaluation_rules
from tests.benchmark.review.damage import Log, T
from tests.benchmark.review.fixture import records, summary_of


@pytest.mark.parametrize(
    ("samples", "warned", "refused"),
    [(11590004, 0, 0), (24567, 0, 0), (5660, 1, 0), (11584344, 1, 0), (24566, 0, 1)],
)
def test_size_of_the_validation_set(samples: int, warned: int, refused: int) -> None:
    log = Log(records(1))
    log.set("eval_samples", samples)
    run = summary_of(log.records)
    assert len(list(evaluation_rules.eval_samples(run))) == warned
    assert len(list(evaluation_rules.too_few_eval_samples(run))) == refused


def test_blocks_are_as_long_as_the_interval() -> None:
    log = Log(records(1))
    line = log.metadata("block_start", 3, epoch_count=2 * T)
    (at,) = evaluation_rules.blocks_match(summary_of(log.records))
    assert (at.line, at.found) == (line, "block_start with epoch_count 100663296")
    log.metadata("block_start", 3, epoch_count=24 * T)  # one block for the whole run is usual
    assert list(evaluation_rules.blocks_match(summary_of(log.records))) == []


@pytest.mark.parametrize(("rise", "told"), [(0.004, 0), (0.006, 1)])
def test_curve_that_goes_up(rise: float, told: int) -> None:
    log = Log(records(1))
    before = log.records[log.place("eval_accuracy", 9)]["value"]
    log.set("eval_accuracy", before + rise, 10)
    assert len(list(evaluation_rules.unsteady_curve(summary_of(log.records)))) == told


def test_early_evaluations_may_fall_further() -> None:
    log = Log(records(1))
    log.set("eval_accuracy", 2.755)
    log.set("eval_accuracy", 2.730, 1)  # by 0.025
    assert list(evaluation_rules.plausible_curve(summary_of(log.records))) == []
    log.set("eval_accuracy", 2.700, 9)
    (at,) = evaluation_rules.plausible_curve(summary_of(log.records))
    assert at.due == "at most 0.012"


def test_run_without_fault_has_none() -> None:
    run = summary_of(records(1))
    for name in (
        "has_tokens", "is_number", "meets_target", "below_floor", "cadence", "blocks_match", "eval_pairs",
        "first_value", "plausible_curve", "unsteady_curve", "stops_at_target", "stop_status", "trained_tokens",
        "eval_samples", "too_few_eval_samples",
    ):  # fmt: skip
        assert list(getattr(evaluation_rules, name)(run)) == [], name
