"""Values made fit for a cell: of the column's kind, printable, and never a formula.

A spreadsheet takes a text in a CSV file that begins with =, +, - or @ for a formula, quoted or not, and may cut a text
at other separators than ours. An apostrophe before such a character makes it text in all of them.
"""

import datetime
import re
from typing import Any

from benchmark.results.printable import shortened
from benchmark.results.result_log import as_number
from benchmark.results_table.columns import Kind

MOST_CHARACTERS = 32_000
"""Of a cell; Excel takes 32,767."""
LARGEST_COUNT = 2**53
"""Above it a spreadsheet, and many a table, no longer tells whole numbers apart."""
FORMULA = re.compile(r"(^\W*?|[,;|\"'`]\s*)(?=[=+\-@\uFF1D\uFF0B\uFF0D\uFF20])")
"""Before a character that begins a formula, wide forms too: at the start of a text, or where it may be cut."""


def cell(value: Any, kind: Kind) -> str | float | bool | None:
    """The value as the kind has it; None where it is not of that kind."""
    if kind == "flag":
        return value if isinstance(value, bool) else None
    if kind == "time":
        return value if isinstance(value, str) and as_time(value) is not None else None
    if kind == "text":
        return None if value is None else shortened(value if isinstance(value, str) else repr(value), MOST_CHARACTERS)
    number = as_number(value)
    if number is None:
        return None
    if kind == "count":
        return int(number) if number == int(number) and abs(number) <= LARGEST_COUNT else None
    return float(number)


def as_time(text: str) -> datetime.datetime | None:
    """A time in ISO 8601 with its zone; None for anything else."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found


def without_formula(text: str) -> str:
    """The text with an apostrophe before every character at which a spreadsheet may begin a formula."""
    return FORMULA.sub(r"\1'", text)


def round_number(value: str | float | bool | None) -> str | float | bool | None:
    """A number to ten significant digits, which is more than a log has of any quantity but a count."""
    return float(f"{value:.10g}") if isinstance(value, float) else value
