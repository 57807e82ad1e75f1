"""Lay out plain text for people: texts of strangers on one line, and sentences and tables folded to the screen."""

import re
import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

PAGE_COLUMNS, NARROWEST, NARROWEST_CELL = 100, 40, 24
"""Columns of lines without a terminal, and of a sentence at most; least columns of a screen, and of a sentence in a
cell, that can be read."""
GAP, INDENT = "  ", "    "
"""Space between two columns of a table, and before the lines that continue a row."""
PATIENCE = 100
"""Multiple of the shown length that is looked at; the rest of a longer text is ignored."""


def screen_width() -> int:
    """Return the columns of the terminal or of COLUMNS; without a terminal, those of a page."""
    return max(NARROWEST, shutil.get_terminal_size((PAGE_COLUMNS, 24)).columns)


def folded(text: str) -> str:
    """Return the text with its long lines folded between words, to the screen's width and at most a page's.

    The rest of a line stands below the text that follows its label, or else a little to the right of its begin.
    """
    width = min(PAGE_COLUMNS, screen_width())
    lines = []
    for line in text.split("\n"):
        label = re.match(r" *\S+( \S+)*  +", line)
        indent = label.end() if label and label.end() < width / 2 else len(line) - len(line.lstrip()) + 2
        lines += _fold(line, width, " " * indent)
    return "\n".join(lines)


def _fold(line: str, width: int, indent: str, initial_indent: str = "") -> list[str]:
    """Return the line in lines of that width. Words, among them paths and names, stay whole."""
    return textwrap.wrap(
        line,
        width,
        initial_indent=initial_indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def table_text(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] | None = None,
    captions: Mapping[int, str] = MappingProxyType({}),
    above: Mapping[int, str] = MappingProxyType({}),
    width: int | None = None,
) -> str:
    """Return a table without rules or colours.

    The columns ``right`` are flush right; None stands for all but the first, because they are mostly figures.
    ``captions``: a line before each of these rows. If the table is wider than ``width``, by default the screen's, the
    columns ``above`` stand in such lines, each in the form given, and sentences in the last column continue below
    their begin where there is room. Otherwise the head and each row continue in indented lines, and a column that is
    wider still is folded between words.
    """
    from rich.cells import cell_len  # slow to import, and not needed elsewhere

    right = range(1, len(head)) if right is None else right
    columns = list(zip(*([printable(cell) for cell in row] for row in (head, *rows)), strict=True))
    width = screen_width() if width is None else width
    widths = [max(map(cell_len, cells)) for cells in columns]
    if above and sum(widths) + len(GAP) * (len(widths) - 1) > width:
        names = {
            number: GAP.join(form.format(row[column]) for column, form in above.items() if row[column] not in ("", "-"))
            for number, row in enumerate(rows)
        }
        inner_columns = [number for number in range(len(head)) if number not in above]
        inner_right = [index for index, number in enumerate(inner_columns) if number in right]
        inner_head, *inner_rows = ([row[number] for number in inner_columns] for row in (head, *rows))
        return table_text(inner_head, inner_rows, right=inner_right, captions=names, width=width)
    line_columns, used, indent = [[0]], widths[0], INDENT + GAP
    for number, cells in enumerate(columns[1:], 1):
        cell_width = len(GAP) + widths[number]
        begin = used + len(GAP)
        if (
            used + cell_width > width
            and number == len(columns) - 1
            and number not in right
            and _fits(cells, width - begin)
        ):
            indent = " " * begin
        elif used + cell_width > width:
            line_columns.append([])
            used = len(INDENT) - len(GAP)
        line_columns[-1].append(number)
        used += cell_width
    blocks = [_aligned([columns[number] for number in numbers], numbers, right) for numbers in line_columns]
    lines = []
    for number, record in enumerate(zip(*blocks, strict=True), -1):
        lines += _fold(printable(captions[number]), width, GAP) if number in captions else []
        for block, line in enumerate(record):
            if line or not block:
                lines += _fold(line, width, indent, INDENT * bool(block))
    return "\n".join(lines)


def _fits(sentences: Sequence[str], width: int) -> bool:
    """Return whether the sentences can be read in a column of that width, and no word of them is wider."""
    return width >= NARROWEST_CELL and all(len(word) <= width for cell in sentences for word in cell.split())


def _aligned(columns: Sequence[Sequence[str]], numbers: Sequence[int], right: Collection[int]) -> list[str]:
    """Return the lines of columns side by side; ``numbers``: those of the columns, of which ``right`` are flush
    right."""
    from rich.cells import cell_len

    aligned = []
    for number, cells in zip(numbers, columns, strict=True):
        width = max(map(cell_len, cells))
        padded = [(cell, " " * (width - cell_len(cell))) for cell in cells]
        aligned.append([space + cell if number in right else cell + space for cell, space in padded])
    return [GAP.join(cells).rstrip() for cells in zip(*aligned, strict=True)]


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
