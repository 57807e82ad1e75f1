"""The table in each form, read back as a user would; no text of a stranger becomes a formula."""

import csv
from pathlib import Path

import openpyxl
import pandas
import pytest

from benchmark.results_table.columns import NAMES
from benchmark.results_table.table_rows import Row
from benchmark.results_table.write_table import write_csv, write_parquet, write_xlsx

HOSTILE = [
    '=HYPERLINK("http://x","y")',
    "+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "a;=1",
    '","=1',
    "\uff1d1",
    "x\x00\x0b\x1b[2Jy\ud800",
]


def rows() -> list[Row]:
    empty: Row = dict.fromkeys(NAMES)
    from benchmark.results_table.cell_values import cell

    return [{**empty, "row": "system", "submitter": cell(text, "text"), "minutes": -1.5, "runs": 3} for text in HOSTILE]


def test_csv_has_no_cell_that_begins_a_formula(tmp_path: Path) -> None:
    write_csv(rows(), tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        for separator in ",;":
            file.seek(0)
            for line in csv.reader(file, delimiter=separator):
                strange = [one for one in line if one.lstrip().startswith(("=", "+", "@", "\uff1d"))]
                assert strange == []
    frame = pandas.read_csv(tmp_path / "t.csv")
    assert list(frame.columns) == list(NAMES)
    assert list(frame["minutes"]) == [-1.5] * len(HOSTILE)


def test_xlsx_has_texts_and_numbers_and_says_what_columns_mean(tmp_path: Path) -> None:
    write_xlsx(rows(), tmp_path / "t.xlsx")
    book = openpyxl.load_workbook(tmp_path / "t.xlsx")
    sheet = book["results"]
    place = NAMES.index("submitter") + 1
    cells = [sheet.cell(number, place) for number in range(2, len(HOSTILE) + 2)]
    assert [one.data_type for one in cells] == ["s"] * len(HOSTILE)
    assert cells[0].value == HOSTILE[0]
    assert sheet.cell(2, NAMES.index("minutes") + 1).value == -1.5
    assert [row[0].value for row in book["columns"].iter_rows(min_row=2)] == list(NAMES)


def test_times_are_times_where_there_are_such(tmp_path: Path) -> None:
    empty: Row = dict.fromkeys(NAMES)
    times = ("2024-10-10T19:36:03.501+00:00", None, "1899-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999+00:00")
    table = [{**empty, "run_started": time} for time in times]
    write_xlsx(table, tmp_path / "t.xlsx")
    write_parquet(table, tmp_path / "t.parquet")
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx")["results"]
    place = NAMES.index("run_started") + 1
    cells = [sheet.cell(number, place) for number in range(2, 6)]
    assert str(cells[0].value).startswith("2024-10-10 19:36:03")
    assert [one.data_type for one in cells] == ["d", "n", "s", "d"]
    assert sheet.auto_filter.ref.startswith("A1:")
    frame = pandas.read_parquet(tmp_path / "t.parquet")
    assert str(frame["run_started"].dtype) == "datetime64[ms, UTC]"
    assert frame["run_started"][3].year == 9999
    assert frame["run_started"].isna().tolist() == [False, True, False, False]


def test_parquet_keeps_types(tmp_path: Path) -> None:
    write_parquet(rows(), tmp_path / "t.parquet")
    frame = pandas.read_parquet(tmp_path / "t.parquet")
    assert frame["runs"].sum() == 3 * len(HOSTILE)
    assert frame["submitter"][1] == "+1"
    assert frame["mfu"].isna().all()


@pytest.mark.parametrize("write", [write_csv, write_xlsx, write_parquet])
def test_table_without_rows_has_its_columns(write: object, tmp_path: Path) -> None:
    write([], tmp_path / "t")  # type: ignore[operator]
    assert (tmp_path / "t").stat().st_size > 100
