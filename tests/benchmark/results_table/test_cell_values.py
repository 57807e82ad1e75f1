"""Cells: of their kind, and never a formula."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.results_table.cell_values import MOST_CHARACTERS, cell, round_number, without_formula

STARTS = "=+-@\uff1d\uff0b\uff0d\uff20"


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("a\tb\x1b[2J", "text", "a?b?[2J"),
        ({"a": 1}, "text", "{'a': 1}"),
        (True, "flag", True),
        ("True", "flag", None),
        (3, "count", 3),
        (3.0, "count", 3),
        (3.5, "count", None),
        (10**400, "count", None),
        (2**63, "count", None),
        ("3", "count", None),
        (True, "number", None),
        (math.nan, "number", None),
        (math.inf, "number", None),
        (1e308, "number", 1e308),
        (1e-310, "number", 1e-310),
        (None, "text", None),
        ("2024-10-10T19:36:03.501+00:00", "time", "2024-10-10T19:36:03.501+00:00"),
        ("2024-10-10T19:36:03", "time", None),
        ("=1", "time", None),
        (1728588963501, "time", None),
    ],
)
def test_cells_are_of_their_kind(value: object, kind: str, expected: object) -> None:
    found = cell(value, kind)  # type: ignore[arg-type]
    assert found == expected
    assert type(found) is type(expected)


def test_long_texts_are_cut() -> None:
    assert len(str(cell("x" * 10**6, "text"))) == MOST_CHARACTERS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("  @SUM(1)", "  '@SUM(1)"),
        ("a;=HYPERLINK(1)", "a;'=HYPERLINK(1)"),
        ('x","=1+1', 'x","\'=1+1'),
        ("-1", "'-1"),
        ("Azure+NVIDIA", "Azure+NVIDIA"),
        ("eos-dfw_n1344", "eos-dfw_n1344"),
        ("\uff1d1", "'\uff1d1"),
    ],
)
def test_no_text_is_a_formula(text: str, expected: str) -> None:
    assert without_formula(text) == expected


@given(st.text(st.sampled_from("=+-@,;|\"' a1\uff1d(")))
def test_wherever_a_text_is_cut_no_part_begins_a_formula(text: str) -> None:
    safe = without_formula(str(cell(text, "text")))
    for separator in ',;|"':
        for part in safe.split(separator):
            assert not part.lstrip().startswith(tuple(STARTS)), safe


def test_numbers_are_rounded_and_texts_are_not() -> None:
    assert round_number(1 / 3) == 0.3333333333
    assert round_number(2.6900000000000004) == 2.69
    assert round_number("1.23456789012345") == "1.23456789012345"
    assert round_number(12345678901234) == 12345678901234
