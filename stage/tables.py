"""Tables that commands print, laid out by rich: plain text, as wide as their cells, the same in a pipe."""

import io
from collections.abc import Collection, Sequence

WIDEST = 10_000
"""Columns; a line that a terminal cannot hold is broken by the terminal, not in the middle of a cell."""


def table_text(titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Return ``rows`` below ``titles`` as lines without colours or borders; the columns ``right`` are flush right."""
    from rich.console import Console  # slow to import, and not needed elsewhere
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(titles):
        table.add_column(Text(title), justify="right" if number in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=io.StringIO(), width=WIDEST, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").splitlines())
