"""Lay out plain text for people: texts of strangers on one line, and tables as wide as they need."""

import io
from collections.abc import Collection, Sequence

WIDEST = 10_000
"""Most columns of a table: a pipe has no width of its own."""
PATIENCE = 100
"""Multiple of the shown length that is looked at; the rest of a longer text is ignored."""


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
    output = io.StringIO()
    Console(file=output, width=WIDEST, color_system=None, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in output.getvalue().rstrip("\n").split("\n"))


def counted(count: int, noun: str) -> str:
    """Return the number with its noun, in the plural unless the number is 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Return the text with a question mark for every control character, so that it cannot control the terminal or break
    the line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(text: str, most: int) -> str:
    """Return the printable text without space around it, cut to at most ``most`` characters; a cut text ends in an
    ellipsis."""
    text = printable(text[: PATIENCE * most].strip()) if len(text) > PATIENCE * most else printable(text.strip())
    return text if len(text) <= most else f"{text[: most - 1]}…"
