"""The one curve that the forecast and the review compare a run with."""

import math

import pytest

from benchmark.config.reference_curves import REFERENCE_CURVES, ReferenceCurve
from benchmark.run_record.status.reference_curve import curve_at

VALUES = (3.0, 2.9, 2.8, 2.75, 2.7, 2.68, 2.66, 2.64)
SMALL = ReferenceCurve(16, 100, VALUES)
LARGE = ReferenceCurve(32, 100, tuple(value + 0.1 for value in VALUES))


def test_values_lie_on_the_curve_and_between_them_on_a_line() -> None:
    curve = curve_at((SMALL,), 16)
    assert [curve.log_perplexity(100 * count) for count in range(1, 9)] == pytest.approx(VALUES)
    assert curve.log_perplexity(150) == pytest.approx(2.95)
    assert curve.log_perplexity(0) == curve.log_perplexity(100)
    assert (curve.tokens_per_value, curve.num_values) == (100, 8)


def test_beyond_the_end_it_is_a_line_over_the_logarithm_of_tokens() -> None:
    curve = curve_at((SMALL,), 16)
    fall = [curve.log_perplexity(800) - curve.log_perplexity(tokens) for tokens in (800 * math.e, 800 * math.e**2)]
    assert fall[1] == pytest.approx(2 * fall[0])
    assert fall[0] == pytest.approx((2.9 - 2.64) / math.log(8 / 2))
    assert math.isfinite(curve.log_perplexity(1e300))


@pytest.mark.parametrize(("size", "offset"), [(8, 0), (16, 0), (20, 0.025), (24, 0.05), (32, 0.1), (64, 0.1)])
def test_between_two_batch_sizes_it_is_interpolated_and_beyond_them_the_nearest(size: int, offset: float) -> None:
    for tokens in (100, 250, 800, 2_000):
        value = curve_at((SMALL, LARGE), size).log_perplexity(tokens)
        assert value == pytest.approx(curve_at((SMALL,), 16).log_perplexity(tokens) + offset)


def test_published_curves_fall_on_beyond_their_ends() -> None:
    for curves in REFERENCE_CURVES.values():
        for reference in curves:
            curve = curve_at(curves, reference.global_batch_size)
            end = curve.num_values * curve.tokens_per_value
            assert curve.log_perplexity(1.5 * end) < reference.log_perplexities[-1]
