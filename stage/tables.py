"""Lay out tables for people as plain text with rich, as wide as they need: a pipe has no width of its own."""

import io
from collections.abc import Collection, Sequence

WIDEST = 10_000
"""Most columns of the text."""


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] | None = None) -> str:
    """Return a table without rules or colours.

    The columns ``right`` are flush right; None stands for all but the first, because they are mostly figures.
    """
    from rich.console import Console  # slow to import, and not needed elsewhere
    from rich.table import Table
    from rich.text import Text

    right = range(1, len(head)) if right is None else right
    table = Table(box=None, pad_edge=False, header_style="")
    for number, title in enumerate(head):
        table.add_column(Text(title), justify="right" if number in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    drawn = io.StringIO()
    Console(file=drawn, width=WIDEST, color_system=None, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in drawn.getvalue().rstrip("\n").split("\n"))
