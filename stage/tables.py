"""Tables for a person, drawn by rich as plain text, at the width that they need: a pipe has no width of its own."""

import io
from collections.abc import Sequence

WIDEST = 10_000
"""Columns."""


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without rules: the first column is flush left, all others, mostly figures, are flush right."""
    from rich.console import Console  # slow to import, and not needed elsewhere
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for number, title in enumerate(head):
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    drawn = io.StringIO()
    Console(file=drawn, width=WIDEST, markup=False, emoji=False, highlight=False, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in drawn.getvalue().rstrip("\n").split("\n"))
