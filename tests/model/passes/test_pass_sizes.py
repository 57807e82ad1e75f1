"""Numbers of products that are added to a weight's gradient at once."""

import pytest

from model.passes.pass_sizes import LARGEST_TERMS, terms_together

BILLION = 10**9


@pytest.mark.parametrize(
    ("weights", "passes", "number"),
    [
        (BILLION, None, 2),
        (BILLION, 8, 2),
        (BILLION, 5, 1),
        (BILLION, 1, 1),
        (LARGEST_TERMS / 2, None, 2),
        (LARGEST_TERMS / 2 + 1, None, 1),
    ],
)
def test_products_wait_for_others_of_the_same_turn_in_the_memory_that_they_may_take(
    weights: float, passes: int | None, number: int
) -> None:
    assert terms_together(weights, passes) == number
