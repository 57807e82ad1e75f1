"""``python -m benchmark results``: review, print the systems, write the table."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmark.results_table.reviewed_places import require_a_log, review_places
from benchmark.results_table.table_rows import Row, rows_of
from benchmark.results_table.write_table import write_csv, write_parquet, write_xlsx
from stage.errors import InputError
from stage.optional_packages import require_optional

SHOWN = (
    ("round", "round", "{}"),
    ("package", "package", "{}"),
    ("system_folder", "system", "{}"),
    ("accelerators_count", "accelerators", "{:,}"),
    ("global_batch_size", "batch", "{:,.0f}"),
    ("measured_minutes", "measured", "{:.2f}"),
    ("scaling_factor", "factor", "{:.4f}"),
    ("score_minutes", "score", "{:.2f}"),
    ("tokens_per_s_per_accelerator", "tokens/s each", "{:,.0f}"),
    ("mfu", "MFU", "{:.1%}"),
    ("errors", "errors", "{}"),
    ("warnings", "questions", "{}"),
)
"""Column, title, and form of its value on the screen."""
NAMED = ("round", "package", "system_folder")
WIDTH = 190
"""Of the table where it is not printed on a terminal: no name is cut."""
WRITERS = {".csv": write_csv, ".parquet": write_parquet, ".xlsx": write_xlsx}
NEEDS = {".parquet": "pyarrow", ".xlsx": "openpyxl"}


def tabulate_results(paths: Sequence[Path], files: Mapping[str, Path | None], ruleset: str | None) -> int:
    """Print the systems, and write all rows to ``files``, which are named by their form: .csv, .parquet or .xlsx.

    Returns the exit status: 0, also where results would be rejected: the table says so. Raises InputError for a path
    without results, for files of which none is a log, and, before anything is reviewed, for a file that is a folder or
    a form that is not installed.
    """
    wanted = [(form, file) for form, file in files.items() if file is not None]
    for form, file in wanted:
        if file.is_dir():
            raise InputError(f"{file}: a folder; --{form[1:]} is the file to write")
        if form in NEEDS:
            require_optional(NEEDS[form], NEEDS[form], f"--{form[1:]}")
    require_a_log(paths)
    rows = rows_of(review_places(paths, ruleset))
    systems = [row for row in rows if row["row"] == "system"]
    plain = Console(highlight=False)
    console = plain if plain.is_terminal else Console(highlight=False, width=WIDTH)
    console.print(_screen(systems))
    problems = [row for row in systems if row["problem"] is not None]
    for row in problems:
        console.print(Text(f"{row['path']}: {row['problem']}", style="red"), soft_wrap=True)
    told_of, runs = len(systems) - len(problems), len(rows) - len(systems)
    without = f", {len(problems)} without results" if problems else ""
    told = "".join(f"; {file}" for _, file in wanted)
    counted = f"{told_of} system{'s' * (told_of != 1)}, {runs} run{'s' * (runs != 1)}"
    console.print(Text(f"{counted}{without}{told}"), soft_wrap=True)
    for form, file in wanted:
        WRITERS[form](rows, file)
    return 0


def _screen(systems: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, title, _ in SHOWN:
        table.add_column(title, justify="left" if name in NAMED else "right", no_wrap=True)
    for row in systems:
        if row["problem"] is None:
            table.add_row(*(Text("-" if row[name] is None else form.format(row[name])) for name, _, form in SHOWN))
    return table
