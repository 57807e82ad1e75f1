"""Rows of the results table, from folders of results, packages, rounds, or folders of rounds."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.results_table.cell_values import as_time, cell
from benchmark.results_table.columns import COLUMNS, Column
from benchmark.results_table.reviewed_places import ReviewedPlace
from benchmark.results_table.row_facts import RunFacts, SystemFacts

if TYPE_CHECKING:
    import pandas

Cell = str | float | bool | None
Row = dict[str, Cell]
"""A value per column, in their order."""
DTYPES = {
    "text": "string",
    "count": "Int64",
    "number": "Float64",
    "flag": "boolean",
    "time": "datetime64[ms, UTC]",
}
"""Of pandas, with missing values."""


def rows_of(places: Sequence[ReviewedPlace]) -> list[Row]:
    """A row per system, each followed by those of its runs; one with the reason for what could not be reviewed."""
    return [row for place in places for row in _rows(place)]


def frame_of(rows: Sequence[Row]) -> "pandas.DataFrame":
    """The rows as a DataFrame with one type per column."""
    import pandas

    def values(column: Column) -> list[Any]:
        cells = [row[column.name] for row in rows]
        return [None if one is None else as_time(str(one)) for one in cells] if column.kind == "time" else cells

    return pandas.DataFrame(
        {column.name: pandas.Series(values(column), dtype=DTYPES[column.kind]) for column in COLUMNS}
    )


def _rows(place: ReviewedPlace) -> Iterator[Row]:
    for facts in place.systems:
        yield system_row(facts)
        yield from (run_row_of(run) for run in facts.runs)
    if place.problem is not None or not place.systems:
        yield problem_row(place.path, place.problem or "no results of gpt3 in it")


def system_row(facts: SystemFacts) -> Row:
    return {one.name: cell(None if one.system is None else one.system(facts), one.kind) for one in COLUMNS}


def run_row_of(run: RunFacts) -> Row:
    return {one.name: cell(None if one.run is None else one.run(run), one.kind) for one in COLUMNS}


def problem_row(path: Path, problem: str) -> Row:
    """A package of which nothing can be told but why."""
    known = {"row": "system", "package": path.name, "path": str(path), "passed": False, "problem": problem}
    return {one.name: cell(known.get(one.name), one.kind) for one in COLUMNS}
