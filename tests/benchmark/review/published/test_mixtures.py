"""Honest runs are made of nothing; what is made of others is."""

import random
from functools import lru_cache

import pytest

from benchmark.review.published import mixtures
from benchmark.review.published.mixtures import Curve, made_of
from benchmark.review.rules.traces.mixture_rules import published_curves


@lru_cache(maxsize=1)
def known() -> tuple[Curve, ...]:
    return published_curves()


def blended(shares: dict[int, float], noise: float) -> Curve:
    draw = random.Random(1)
    curves = {place: [one for one in known() if len(one.values) >= 23][place] for place in shares}
    values = [
        sum(share * curves[place].values[number] for place, share in shares.items()) + draw.gauss(0, noise)
        for number in range(23)
    ]
    found = mixtures.curve("x", [*values, 2.69], [*next(iter(curves.values())).usual[:23], 2.69], published=False)
    assert found is not None
    return found


def test_there_are_as_many_curves_as_distinct_published_logs() -> None:
    assert len(known()) == 117


@pytest.mark.parametrize("place", range(0, 117, 13))
def test_published_runs_are_made_of_nothing(place: int) -> None:
    """All of them: python -m tests.speed.trials --published."""
    assert made_of(known()[place], (*known()[:place], *known()[place + 1 :])) is None


@pytest.mark.parametrize(
    ("shares", "noise"),
    [
        ({0: 0.5, 1: 0.5}, 0),
        ({2: 0.25, 9: 0.75}, 2e-5),
        ({30: 0.9, 31: 0.1}, 1e-5),
        ({10: 0.3, 11: 0.3, 12: 0.4}, 1e-5),
    ],
)
def test_blends_with_noise_are_found(shares: dict[int, float], noise: float) -> None:
    found = made_of(blended(shares, noise), known())
    assert found is not None
    assert found.made
    assert found.what.startswith("a curve that is")


def test_noise_as_of_training_hides_a_blend() -> None:
    assert made_of(blended({0: 0.5, 1: 0.5}, 2e-4), known()) is None


@pytest.mark.parametrize("values", [[2.7] * 5, [2.7] * 20 + [float("nan")] * 5, []])
def test_too_few_values_or_none(values: list[float]) -> None:
    assert mixtures.curve("x", values, [2.7] * len(values), published=False) is None


def test_values_of_strangers_end_nothing() -> None:
    huge = mixtures.curve("x", [1e308 * (-1) ** place for place in range(30)], [2.7] * 30, published=False)
    flat = mixtures.curve("y", [2.7] * 30, [2.7] * 30, published=False)
    assert huge is not None
    assert flat is not None
    assert made_of(huge, known()) is None
    made_of(flat, (*known(), huge), (huge, flat))
