"""Figures of values: no digits are lost far from zero."""

import math

import numpy as np
import pytest

from checkpoint_convert.inspection.value_statistics import Statistics, statistics


def test_digits_are_kept_far_from_zero() -> None:
    """The sum of squares minus the square of the sum would be noise here."""
    values = 1e9 + np.random.default_rng(0).normal(size=3_000_000)
    total = Statistics()
    for part in np.array_split(values, 7):
        total += statistics(part)
    assert total.sd == pytest.approx(values.std(), rel=1e-9)
    assert total.mean == pytest.approx(values.mean(), rel=1e-15)


def test_figures_of_a_few_values() -> None:
    found = statistics(np.array([[1.0, 0.0], [-0.0, 3.0]], np.float32))
    assert (found.count, found.zeros, found.finite, found.minimum, found.maximum, found.mean) == (
        4,
        2,
        4,
        0.0,
        3.0,
        1.0,
    )
    assert found.sd == pytest.approx(math.sqrt(1.5))
    assert statistics(np.zeros((0, 3))) == Statistics()


def test_nothing_added_changes_nothing() -> None:
    some = statistics(np.array([1.0, math.nan, math.inf, 5.0]))
    assert some + Statistics() == some == Statistics() + some
    assert (some.count, some.nan, some.inf, some.finite, some.mean) == (4, 1, 1, 2, 3.0)
