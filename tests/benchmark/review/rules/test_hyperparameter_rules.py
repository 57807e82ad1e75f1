"""Hyperparameters by batch size: what is a rounding, and what is wrong."""

import pytest

from benchmark.review.rules import hyperparameter_rules
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records, summary_of
from tests.benchmark.review.trials.told import rule_tests


@pytest.mark.parametrize(("steps", "near", "far"), [(199, 0, 0), (198, 1, 0), (200, 1, 0), (195, 0, 1), (265, 0, 1)])
def test_warm_up_near_the_formula_is_a_rounding(steps: int, near: int, far: int) -> None:
    log = Log(records(1))
    log.set("opt_learning_rate_warmup_steps", steps)
    run = summary_of(log.records)
    assert len(list(hyperparameter_rules.near_formula(run))) == near
    assert len(list(hyperparameter_rules.far_from_formula(run))) == far
    for at in (*hyperparameter_rules.near_formula(run), *hyperparameter_rules.far_from_formula(run)):
        assert at.due == "199 = ceil(265 x 1536 / 2048)"


@pytest.mark.parametrize(
    ("size", "allowed"),
    [(1536, {2e-5}), (3072, {2e-5}), (3073, {2e-5, 3e-5}), (4095, {2e-5, 3e-5}), (4096, {3e-5}), (8192, {3e-5})],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_base_rate_by_batch_size(size: int, allowed: set[float]) -> None:
    for rate in (2e-5, 3e-5):
        run = summary_of(records(1, batch_size=size, evaluations=2, rate=rate))
        assert (not list(hyperparameter_rules.base_learning_rate(run))) is (rate in allowed)


@pytest.mark.parametrize(("size", "small", "large"), [(1535, 1, 0), (1536, 0, 0), (8192, 0, 0), (8193, 0, 1)])
def test_batch_sizes_beyond_the_reference_points(size: int, small: int, large: int) -> None:
    run = summary_of(records(1, batch_size=size, evaluations=2))
    assert len(list(hyperparameter_rules.batch_too_small(run))) == small
    assert len(list(hyperparameter_rules.batch_too_large(run))) == large


def test_end_rate_given_as_the_ratio_is_a_warning() -> None:
    log = Log(records(1))
    log.set("opt_end_learning_rate", 0.1)
    run = summary_of(log.records)
    (at,) = hyperparameter_rules.end_rate_as_ratio(run)
    assert (at.found, at.due) == ("opt_end_learning_rate 0.1, the ratio", "2e-06")
    assert list(hyperparameter_rules.end_learning_rate(run)) == []


@pytest.mark.parametrize(("steps", "told"), [(4, 0), (2048, 0), (3, 1), (4096, 1)])
def test_accumulation_divides_the_batch(steps: int, told: int) -> None:
    log = Log(records(1))
    log.set("gradient_accumulation_steps", steps)
    assert len(list(hyperparameter_rules.batch_splits(summary_of(log.records)))) == told


def test_open_division_is_free() -> None:
    log = Log(records(1, batch_size=9000, evaluations=2, rate=1e-4))
    log.set("submission_division", "open")
    log.set("opt_learning_rate_warmup_steps", 7)
    log.set("opt_end_learning_rate", 0.0)
    run = summary_of(log.records)
    for name in ("near_formula", "far_from_formula", "base_learning_rate", "batch_too_large", "end_learning_rate"):
        assert list(getattr(hyperparameter_rules, name)(run)) == [], name


FOUND = (
    ("value.own_keys", "a key of its own: attention to the last 1,024 tokens only", "sliding_window 1024"),
    ("value.own_keys", "a key of its own: another rate", "learning_rate 6e-05"),
    ("value.own_keys", "a key of its own: weights started from another checkpoint", "step-8000"),
    ("value.own_keys", "a key of its own: target of its own", "target_accuracy 2.75"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
