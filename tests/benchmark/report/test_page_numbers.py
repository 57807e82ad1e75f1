"""Numbers of the page."""

import pytest

from benchmark.report.page_numbers import number, perplexity


@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (None, "{:.2f}", "\N{EN DASH}"),
        (2.0, "{:.2f}", "2.00"),
        (1e308, "{:,.0f}", "1e+308"),
        (-1e20, "{:.5f}", "-1e+20"),
    ],
)
def test_numbers_are_a_dash_or_fit_a_line(value: float | None, form: str, expected: str) -> None:
    assert number(value, form) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.6900000000000004, "2.6900000000000004"),
        (2.690004, "2.690004"),
        (2.69, "2.69000"),
        (2.6899999, "2.69000"),
        (2.68972, "2.68972"),
        (2.7, "2.70000"),
        (1e308, "1e+308"),
        (None, "\N{EN DASH}"),
    ],
)
def test_perplexity_is_never_rounded_across_the_target(value: float | None, expected: str) -> None:
    assert perplexity(value, 2.69) == expected
