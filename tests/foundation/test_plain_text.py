"""Tables are as wide as their cells; what is wider than the screen is folded."""

import pytest

from foundation.plain_text import folded, table_text


def test_columns_are_as_wide_as_their_cells_whatever_is_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    long = "x" * 300
    shown = table_text(["name", "size"], [["[red]a[/red]", "1"], [long, "22"]]).splitlines()
    assert shown[0].split() == ["name", "size"]
    assert shown[1] == "[red]a[/red]" + " " * (300 - 12) + "     1"
    assert shown[2] == f"{long}    22"
    assert table_text(["a", "b"], [["1", "2"]], right=()) == "a  b\n1  2"


def test_a_row_wider_than_the_screen_goes_on_in_lines_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["a" * 20, "1", "x" * 30, "22"], ["b", "2", "", ""], ["c", "3", f"{'y ' * 18}z", "\n"]]
    assert table_text(["name", "size", "words", "n"], rows, right=(1, 3), captions={1: "the others"}).split("\n") == [
        "name                  size",
        "    words",
        "     n",
        "aaaaaaaaaaaaaaaaaaaa     1",
        f"    {'x' * 30}",
        "    22",
        "the others",
        "b                        2",
        "c                        3",
        f"    {'y ' * 18}".rstrip(),
        "      z",
        "     ?",
    ]
    assert table_text(["n", "reason"], [["10", f"{'word ' * 8}"], ["9", "none"]], right=(0,)).split("\n") == [
        " n  reason",
        "10  word word word word word word word",
        "    word",
        " 9  none",
    ]
    rows = [["a" * 20, "1", "-", "5"], ["b", "2", "x", "66"]]
    assert table_text(["name", "size", "kind", "seconds"], rows, right=(1, 3), above={0: "{}", 2: "of {}"}).split(
        "\n"
    ) == ["size  seconds", "a" * 20, "   1        5", "b  of x", "   2       66"]
    text = f"label   {'word ' * 8}\n  - {'word ' * 8}\n\n/{'path/' * 10} short"
    assert folded(text).split("\n") == [
        "label   word word word word word word",
        "        word word",
        "  - word word word word word word word",
        "    word",
        "",
        f"/{'path/' * 10}",
        "  short",
    ]
