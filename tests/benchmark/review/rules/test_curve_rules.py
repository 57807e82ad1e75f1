"""Runs outside the envelope of published curves, and curves that no training made."""

from pathlib import Path

import pytest

from benchmark.review.findings import Deviation
from benchmark.review.published.published_traces import PublishedTrace, published_traces
from benchmark.review.rules import curve_rules
from benchmark.review.rules.curve_rules import CURVES, expected
from tests.benchmark.review.damage import Log, T
from tests.benchmark.review.disguises import as_run, values_of, with_values
from tests.benchmark.review.fixture import Record, records, summary_of

RULES = ("outside_envelope", "far_from_envelope", "too_smooth", "too_even", "rounded")


def told(run: list[Record]) -> dict[str, list[Deviation]]:
    summary = summary_of(run, Path("result_0.txt"))
    found = {name: list(getattr(curve_rules, name)(summary)) for name in RULES}
    return {name: deviations for name, deviations in found.items() if deviations}


@pytest.mark.parametrize("published", published_traces()[::5], ids=lambda run: run.name)
def test_published_runs_lie_inside(published: PublishedTrace) -> None:
    assert told(as_run(published, 1)) == {}


def test_distance_is_told_in_standard_deviations() -> None:
    log = Log(records(1))
    log.set("eval_accuracy", 2.7590)
    (far,) = told(log.records)["far_from_envelope"]
    assert far.found == "the first value 2.7590: 6.9 standard deviations above published runs"
    assert far.due == "within 4 of the median curve at batch size 2048"
    log.set("eval_accuracy", 2.7650)
    (outside,) = told(log.records)["outside_envelope"]
    assert outside.found.startswith("the first value 2.7650: 11.5 standard deviations above")


@pytest.mark.parametrize(
    ("better", "rules"), [(0.001, set()), (0.0035, {"far_from_envelope"}), (0.007, {"outside_envelope"})]
)
def test_curve_below_those_of_honest_runs(better: float, rules: set[str]) -> None:
    run = records(1)
    *before, last = values_of(run)
    values = [before[0], *(max(value - better, 2.6901 + 1e-5 * place) for place, value in enumerate(before[1:])), last]
    assert set(told(with_values(run, values))) >= rules
    assert bool(told(with_values(run, values))) == bool(rules)


def test_slow_run_is_a_question_never_an_error() -> None:
    assert set(told(records(1, evaluations=40))) == {"far_from_envelope"}


def test_curve_of_another_batch_size() -> None:
    run = with_values(records(1, batch_size=6144, evaluations=24), values_of(records(2, batch_size=2048)))
    assert told(run)


def test_smooth_even_and_rounded() -> None:
    smooth = with_values(records(1), [2.6898 + 0.0604 * (1 - number / 23) ** 1.7 for number in range(24)])
    assert "too_smooth" in told(smooth)
    rounded = with_values(records(1), [round(value, 4) for value in values_of(records(1))])
    assert set(told(rounded)) == {"rounded"}
    log = Log(records(1))
    start = log.records[log.place("run_start")]["time_ms"]
    for number in range(24):
        log.records[log.place("eval_accuracy", number)]["time_ms"] = start + (number + 1) * 130_000
    assert set(told(log.records)) == {"too_even"}


def test_open_division_and_rehearsals_have_no_envelope() -> None:
    for key, value in (("submission_division", "open"), ("submission_benchmark", "gpt3_rehearsal")):
        log = Log(with_values(records(1), [5 - number / 10 + number**2 / 999 for number in range(24)]))
        log.set(key, value)
        assert "outside_envelope" not in told(log.records)


def test_reference_between_batch_sizes_and_beyond_its_end() -> None:
    low, high = CURVES[1], CURVES[2]
    assert expected(2048, T) == low.log_perplexities[0]
    assert expected(2560, T) == pytest.approx((low.log_perplexities[0] + high.log_perplexities[0]) / 2)
    assert expected(512, T) == CURVES[0].log_perplexities[0]
    assert expected(50_000, T) == CURVES[-1].log_perplexities[0]
    assert expected(2048, 25 * T) == pytest.approx(2.6896 - 0.00134, abs=1e-4)
    assert expected(2048, 1e300) == expected(2048, 1e200)
