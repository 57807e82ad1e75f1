"""Which colour and dash each line has, and panels of their own where there are more lines than colours."""

from collections.abc import Sequence
from dataclasses import replace

from benchmark.report.figures import Figure, Line

DASHES = 4


def coloured(figures: Sequence[Figure], groups: Sequence[int], colours: int) -> list[Figure]:
    """Lines in the colour of their run's group; the runs of a group differ in their dashes."""
    return [replace(figure, lines=[_coloured(line, groups, colours) for line in figure.lines]) for figure in figures]


def in_panels(figures: Sequence[Figure], groups: Sequence[int], names: Sequence[str], colours: int) -> list[Figure]:
    """Figures as they are while each group has a colour; else one per group, on the scale of all, and named as it."""
    if len(set(groups)) <= colours:
        return list(figures)
    return [panel for figure in figures for panel in _panels(figure, groups, names)]


def _panels(figure: Figure, groups: Sequence[int], names: Sequence[str]) -> list[Figure]:
    xs = [x for line in figure.lines for x in line.x]
    ys = [y for line in figure.lines for y in line.values]
    panels = []
    for group in dict.fromkeys(groups):
        lines = [line for line in figure.lines if groups[line.run] == group]
        if lines:
            panels.append(
                replace(
                    figure,
                    name=f"{figure.name}-{group}",
                    family=figure.name,
                    heading=figure.title,
                    title=names[group],
                    lines=[replace(line, colour=0) for line in lines],
                    marks=[mark for mark in figure.marks if groups[mark.run] == group],
                    x_range=(min(xs), max(xs)),
                    y_range=(min(ys), max(ys)),
                )
            )
    return panels


def _coloured(line: Line, groups: Sequence[int], colours: int) -> Line:
    group = groups[line.run]
    return replace(line, colour=group % colours, dash=groups[: line.run].count(group) % DASHES)
