"""Differences of curves, by numbers worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.report.comparing.curve_differences import differences, value_at
from benchmark.report.figures import Figure, Line
from tests.benchmark.review.fixture import records, summary_of

SUMMARY = summary_of(records(1), Path("result_0.txt"))
OWN = replace(SUMMARY, benchmark="gpt3_rehearsal")


def accuracy(*curves: list[tuple[float, float]]) -> Figure:
    lines = [Line(run, [x for x, _ in curve], [y for _, y in curve]) for run, curve in enumerate(curves)]
    return Figure("accuracy", "A", "tokens", "tokens", "nats", lines)


def test_difference_to_the_mean_of_the_first_system() -> None:
    figure = accuracy([(0, 3.0), (10, 2.0)], [(0, 3.2), (10, 2.2)], [(5, 2.7), (10, 2.0), (20, 1.0)])
    found = differences(figure, [OWN] * 3, [0, 0, 1], ["first", "second"])
    assert found is not None
    assert found.title == "Difference of log perplexity to the mean of first"
    assert [line.y for line in found.lines] == [[-0.1, -0.1], [0.1, 0.1], [0.1, -0.1]]
    assert found.lines[2].x == [5, 10]
    assert found.shade is None


def test_published_runs_at_the_batch_size_are_the_baseline() -> None:
    curve = [(one.tokens or 0.0, one.log_perplexity or 0.0) for one in SUMMARY.evaluations]
    found = differences(accuracy(curve), [SUMMARY], [0], ["ours"])
    assert found is not None
    assert found.title == "Difference of log perplexity to the mean of the 48 published runs at batch size 2,048"
    assert found.shade is not None
    assert all(low <= 0 <= high for low, high in zip(found.shade.low, found.shade.high, strict=True))
    assert max(found.shade.high) < 0.01


def test_nothing_to_compare_with() -> None:
    assert differences(accuracy([(0, 3.0), (10, 2.0)]), [OWN], [0], ["ours"]) is None
    assert differences(accuracy([(0, 3.0)], [(5, 2.0)]), [OWN] * 2, [0, 1], ["a", "b"]) is None


@pytest.mark.parametrize(("x", "expected"), [(-1, None), (0, 1.0), (5, 1.5), (10, 2.0), (11, None)])
def test_value_between_two_points(x: float, expected: float | None) -> None:
    assert value_at([(0, 1.0), (10, 2.0)], x) == expected
