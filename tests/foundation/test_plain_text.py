"""Tables: plain text, as wide as their cells."""

from foundation.plain_text import table_text


def test_columns_are_as_wide_as_their_cells_whatever_is_in_them() -> None:
    long = "x" * 300
    shown = table_text(["name", "size"], [["[red]a[/red]", "1"], [long, "22"]]).splitlines()
    assert shown[0].split() == ["name", "size"]
    assert shown[1] == "[red]a[/red]" + " " * (300 - 12) + "     1"
    assert shown[2] == f"{long}    22"
    assert table_text(["a", "b"], [["1", "2"]], right=()) == "a  b\n1  2"
