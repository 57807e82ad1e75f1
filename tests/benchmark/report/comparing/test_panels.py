"""Colours, dashes and panels."""

from benchmark.report.comparing.panels import coloured, in_panels
from benchmark.report.figures import Figure, Line, Mark

LINES = [Line(run, [0, 1 + run], [run, 2 * run]) for run in range(8)]
FIGURE = Figure("loss", "Loss", "tokens", "tokens", "nats", LINES, marks=[Mark(3, "restart", 0.5)])


def test_runs_of_a_group_share_a_colour_and_differ_in_dashes() -> None:
    (figure,) = coloured([FIGURE], [0, 0, 0, 1, 1, 1, 2, 2], 6)
    assert [(line.colour, line.dash) for line in figure.lines] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1),
    ]  # fmt: skip
    assert in_panels([figure], [0, 0, 0, 1, 1, 1, 2, 2], "abc", 6) == [figure]


def test_more_groups_than_colours_have_panels_on_one_scale() -> None:
    panels = in_panels([FIGURE], list(range(8)), "abcdefgh", 6)
    assert [(panel.name, panel.title, panel.family, panel.heading) for panel in panels[:2]] == [
        ("loss-0", "a", "loss", "Loss"),
        ("loss-1", "b", "loss", "Loss"),
    ]
    assert {(panel.x_range, panel.y_range) for panel in panels} == {((0, 8), (0, 14))}
    assert [len(panel.lines) for panel in panels] == [1] * 8
    assert [len(panel.marks) for panel in panels] == [0, 0, 0, 1, 0, 0, 0, 0]


def test_no_two_groups_on_one_plot_have_one_colour() -> None:
    for groups in (6, 7, 42):
        each = list(range(groups))
        figure = Figure("f", "F", "", "", "", [Line(run, [0], [run]) for run in each])
        figures = in_panels(coloured([figure], each, 6), each, ["n"] * groups, 6)
        for figure in figures:
            assert len({line.colour for line in figure.lines}) == len(figure.lines)
