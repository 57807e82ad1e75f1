"""Seconds in words."""

import pytest

from benchmark.results.durations import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.50 s"), (99.99, "99.99 s"), (100, "100.0 s"), (300, "5.00 min"), (5399, "89.98 min"), (5400, "1.50 h")],
)
def test_durations_have_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert duration(seconds) == text
