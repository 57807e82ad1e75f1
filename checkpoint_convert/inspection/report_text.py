"""Texts of reports on arrays for a person: tables with names under what they begin with, shapes, and bytes in short."""

from collections.abc import Sequence

from stage.tables import table_text


def array_table(names: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of arrays; the beginning of a name up to the model's own part is a heading."""
    shown: list[list[str]] = []
    last = ""
    for name, row in zip(names, rows, strict=True):
        heading, rest = _split(name)
        if heading not in ("", last):
            shown.append([heading, *[""] * len(head)])
        last = heading
        shown.append([f"  {rest}", *row])
    return table_text(["", *head], shown)


def _split(name: str) -> tuple[str, str]:
    for mark in ("language_model.", "params.lm.", "/"):
        heading, found, rest = name.partition(mark)
        if found:
            return heading + found, rest
    return "", name


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def bytes_text(count: float) -> str:
    """Return bytes in units of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
