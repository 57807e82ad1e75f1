"""Mixing datasets by weight: the rule as it reads, and its shortcut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sample_order import blend
from foundation.errors import InputError


@settings(max_examples=100)
@given(
    weights=st.lists(st.floats(0.001, 1000), min_size=2, max_size=2),
    start=st.integers(0, 2000),
)
def test_the_shortcut_for_two_datasets_chooses_as_the_rule_does(weights: list[float], start: int) -> None:
    share = blend.normalized(weights)
    before = blend._choose_one_by_one(share, [0, 0], slice(0, start))
    counts = [int(np.count_nonzero(before == index)) for index in range(2)]
    block = slice(start, start + 300)
    shortcut = blend._choose_of_two(share, counts[0], block)
    assert shortcut is not None
    np.testing.assert_array_equal(shortcut, blend._choose_one_by_one(share, counts, block))


@pytest.mark.parametrize("weights", [[0.3, 0.7], [0.1, 0.9], [0.5, 0.5], [1.0, 0.0]])
def test_ties_in_the_blend_are_broken_in_float64(weights: list[float]) -> None:
    shortcut = blend._choose_of_two(weights, 0, slice(0, 20_000))
    assert shortcut is not None
    np.testing.assert_array_equal(shortcut, blend._choose_one_by_one(weights, [0, 0], slice(0, 20_000)))


def test_blend_counts_each_dataset_through() -> None:
    dataset, sample = blend.blend_index(blend.normalized([2, 1, 1]), 1000)
    for index in range(3):
        np.testing.assert_array_equal(sample[dataset == index], np.arange(np.count_nonzero(dataset == index)))
    np.testing.assert_allclose(np.bincount(dataset) / 1000, [0.5, 0.25, 0.25], atol=0.002)


def test_blend_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = blend.blend_index([0.3, 0.7], 1000)
    monkeypatch.setattr(blend, "BLOCK", 7)
    for array, expected in zip(blend.blend_index([0.3, 0.7], 1000), whole, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_margin_of_the_benchmark() -> None:
    assert blend.samples_per_dataset(20_000_000, [0.5, 0.5]) == [10_050_000, 10_050_000]
    assert blend.samples_per_dataset(-1, [0.5, 0.5]) == [
        -1,
        -1,
    ]  # the reference asks for 0 (docs/facts/reference.md j.16)


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [0.0, 0.0], [float("nan"), 1.0]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError, match="expected numbers >= 0 with a positive sum"):
        blend.normalized(weights)
