"""The results table as CSV, Parquet and XLSX. No text of a stranger becomes a formula in any of them."""

import csv
import datetime
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.results_table.cell_values import as_time, without_formula
from benchmark.results_table.columns import COLUMNS, NAMES
from benchmark.results_table.table_rows import Cell, Row, frame_of
from stage.optional_packages import import_optional
from stage.outputs.publish import published_file, write_text

SHEET = "results"
FIRST_YEAR = 1900
"""Of a spreadsheet's calendar."""


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """UTF-8, RFC 4180. Empty: not known."""
    write_text(path, csv_text(rows, NAMES))


def csv_text(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Some columns as CSV, each line ended by a line feed."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(names)
    for row in rows:
        table.writerow([_plain(row[name]) for name in names])
    return out.getvalue()


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Raises InputError where pyarrow is not installed."""
    import_optional("pyarrow", "pyarrow", "--parquet")
    with published_file(path) as partial:
        frame_of(rows).to_parquet(partial, engine="pyarrow", index=False)


def write_xlsx(rows: Sequence[Row], path: Path) -> None:
    """Texts are stored as texts, not as what a spreadsheet would make of them, times as times (UTC, which a cell cannot
    say); the table can be filtered; a second sheet says what columns mean.

    Raises InputError where openpyxl is not installed.
    """
    openpyxl = import_optional("openpyxl", "openpyxl", "--xlsx")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = SHEET
    head: list[list[Cell]] = [list(NAMES)]
    _fill(sheet, head + [[row[name] for name in NAMES] for row in rows])
    for number, column in enumerate(COLUMNS, 1):
        if column.kind == "time":
            _as_times(sheet, number)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = sheet.dimensions
    meanings: list[list[Cell]] = [["column", "kind", "meaning"]]
    _fill(book.create_sheet("columns"), meanings + [[one.name, one.kind, one.meaning] for one in COLUMNS])
    with published_file(path) as partial, partial.open("wb") as out:
        book.save(out)


def _fill(sheet: Any, table: Sequence[Sequence[Cell]]) -> None:
    for row_number, values in enumerate(table, 1):
        for column_number, value in enumerate(values, 1):
            if value is None:
                continue
            one = sheet.cell(row_number, column_number)
            one.value = value
            if isinstance(value, str):
                one.data_type = "s"  # a text that begins with = would else be a formula
                one.quotePrefix = True


def _as_times(sheet: Any, column: int) -> None:
    """Of the years that a spreadsheet knows."""
    for row in range(2, sheet.max_row + 1):
        one = sheet.cell(row, column)
        time = None if one.value is None else as_time(one.value)
        if time is not None and time.year >= FIRST_YEAR:
            one.value = time.astimezone(datetime.UTC).replace(tzinfo=None)
            one.number_format = "yyyy-mm-dd hh:mm:ss"
            one.quotePrefix = False


def _plain(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return without_formula(value)
    return f"{value:g}" if isinstance(value, float) and value == int(value) and abs(value) < 1e6 else repr(value)
