"""Texts of strangers on one line."""

import pytest

from benchmark.results.printable import duration, printable, shortened


def test_control_characters_become_question_marks() -> None:
    assert printable("\x1b[31mred\x07 ä\n") == "?[31mred? ä?"


def test_long_texts_end_with_an_ellipsis_within_their_length() -> None:
    assert shortened("  abcdef \n", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.50 s"), (99.99, "99.99 s"), (100, "100.0 s"), (300, "5.00 min"), (5399, "89.98 min"), (5400, "1.50 h")],
)
def test_durations_have_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert duration(seconds) == text
