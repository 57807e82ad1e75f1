"""Texts of strangers on one line."""

from benchmark.results.printable import printable, shortened


def test_control_characters_become_question_marks() -> None:
    assert printable("\x1b[31mred\x07 ä\n") == "?[31mred? ä?"


def test_long_texts_end_with_an_ellipsis_within_their_length() -> None:
    assert shortened("  abcdef \n", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
