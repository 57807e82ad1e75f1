"""Tables of arrays for a person: names under what they begin with, shapes, and bytes in short."""

from collections.abc import Sequence
from typing import Any


def table(names: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a table; the beginning of a name up to the model's own part is a heading."""
    cut = [_split(name) for name in names]
    cells = [["", *head], *([rest, *row] for (_, rest), row in zip(cut, rows, strict=True))]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines, last = [], None
    for (heading, _), row in zip([("", ""), *cut], cells, strict=True):
        if heading != last and heading:
            lines.append(heading)
        last = heading
        padded = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(f"  {row[0]:<{widths[0]}}  {'  '.join(padded)}")
    return lines


def _split(name: str) -> tuple[str, str]:
    for mark in ("language_model.", "params.lm.", "/"):
        heading, found, rest = name.partition(mark)
        if found:
            return heading + found, rest
    return "", name


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def bytes_text(count: float) -> str:
    """Bytes in units of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
