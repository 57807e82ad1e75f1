"""Tables of arrays: what names begin with is a heading, and columns stand under each other."""

import pytest

from checkpoint_convert.inspection.report_text import array_table, bytes_text, shape_text


def test_names_stand_under_what_they_begin_with() -> None:
    names = ["mdl_vars.params.lm.a", "mdl_vars.params.lm.longer", "model/x", "plain"]
    shown = array_table(names, ("shape", "n"), [["2x3", "1"], ["4", "22"], ["[b]scalar", "3"], ["5", "4"]])
    assert shown.split("\n") == [
        "                         shape   n",
        "mdl_vars.params.lm.",
        "  a                        2x3   1",
        "  longer                     4  22",
        "model/",
        "  x                  [b]scalar   3",
        "  plain                      5   4",
    ]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (12_345_678, "12.3 MB"), (5e9, "5 GB"), (2.1e15, "2.1e+03 TB")],
)
def test_bytes_in_short(count: float, expected: str) -> None:
    assert bytes_text(count) == expected


def test_shapes() -> None:
    assert (shape_text((2, 30)), shape_text((7,)), shape_text(())) == ("2x30", "7", "scalar")
