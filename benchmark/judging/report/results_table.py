"""Print ``python -m benchmark results``: a table of runs with the review's verdicts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas

from benchmark.judging.report.judgement import Judgement, judge
from benchmark.judging.results.frames import RUN_TYPES, csv_text, frame_of, run_records, systems_frame
from foundation.errors import InputError
from foundation.optional_packages import require_optional
from foundation.outputs.publish import published_file, write_text
from foundation.plain_text import printable, table_text

SHOWN = (
    ("round", "round", "{}"),
    ("submission_benchmark", "benchmark", "{}"),
    ("package", "package", "{}"),
    ("system_folder", "system", "{}"),
    ("accelerators_count", "accelerators", "{:,}"),
    ("global_batch_size", "batch", "{:,}"),
    ("measured_minutes", "measured", "{:.2f}"),
    ("scaling_factor", "factor", "{:.4f}"),
    ("score_minutes", "score", "{:.2f}"),
    ("tokens_per_s_per_accelerator", "tokens/s each", "{:,.0f}"),
    ("mfu", "MFU", "{:.1%}"),
    ("peak_format", "format", "{}"),
    ("verdict", "verdict", "{}"),
    ("errors", "errors", "{}"),
    ("warnings", "questions", "{}"),
)
"""Column, title and format of each value on the screen."""
ABOVE = ("round", "submission_benchmark", "package", "system_folder", "global_batch_size", "peak_format", "verdict")
"""Columns that stand above the others on a narrow screen, besides the numbers of errors and questions."""
TYPES = {
    **RUN_TYPES,
    "path": "string",
    "verdict": "string",
    "errors": "Int64",
    "warnings": "Int64",
    "problem": "string",
}
"""Pandas type of each column; the review's columns follow those of the runs."""


def results_frame(paths: Sequence[Path | str], ruleset: str | None = None) -> pandas.DataFrame:
    """Return the table of ``python -m benchmark results``; docs/results.md explains its columns.

    Raises InputError for a path without results, and if none of the files is a log. The official checkers run, which
    takes a few seconds for each package.
    """
    return judged_frame(judge([Path(path) for path in paths], ruleset))


def judged_frame(judgement: Judgement) -> pandas.DataFrame:
    """Return a row per run, and a row for each package that could not be reviewed; the index numbers the systems."""
    records: list[dict[str, Any]] = []
    systems: list[int] = []
    for number, system in enumerate(judgement.systems):
        review_columns = {
            "verdict": system.verdict,
            "errors": len(system.findings("error")),
            "warnings": len(system.findings("warning")),
        }
        paths: Sequence[Path | None] = system.result_set.files or [system.result_set.folder]
        for record, path in zip(run_records(system.result_set), paths, strict=True):
            records.append({**record, **review_columns, "path": str(path)})
            systems.append(number)
    for number, (path, problem) in enumerate(judgement.problems, len(judgement.systems)):
        records.append({"package": path.name, "path": str(path), "verdict": "rejected", "problem": problem})
        systems.append(number)
    return frame_of(records, TYPES, systems)


def tabulate_results(paths: Sequence[Path], csv: Path | None, parquet: Path | None, ruleset: str | None) -> int:
    """Print the systems, write all runs to the named files, and return exit status 0, whatever the verdicts.

    Raises InputError for a path without results and if none of the files is a log. Before anything is reviewed, it
    raises InputError for an output file that is a folder, and for Parquet if pyarrow is not installed.
    """
    for option, file in (("--csv", csv), ("--parquet", parquet)):
        if file is not None and file.is_dir():
            raise InputError(f"{file}: a folder; {option} is the file to write")
    if parquet is not None:
        require_optional("pyarrow", "pyarrow", "--parquet")
    judgement = judge(paths, ruleset)
    frame = judged_frame(judgement)
    systems = systems_frame(frame)
    problems = systems[systems["problem"].notna()]
    print(systems_text(systems[systems["problem"].isna()]))
    for path, problem in zip(problems["path"], problems["problem"], strict=True):
        print(printable(f"{path}: {problem}"))
    for folder in judgement.empty_folders:
        print(printable(f"{folder}: no result_*.txt there, and not in the table"))
    if csv is not None:
        write_text(csv, csv_text(frame))
    if parquet is not None:
        with published_file(parquet) as partial:
            frame.to_parquet(partial, engine="pyarrow", index=False)
    num_systems, runs = len(systems) - len(problems), int(frame["minutes"].notna().sum())
    without = f", {len(problems)} without results" if len(problems) else ""
    files = "".join(f"; {file}" for file in (csv, parquet) if file is not None)
    print(f"{num_systems} system{'s' * (num_systems != 1)}, {runs} run{'s' * (runs != 1)}{without}{files}")
    return 0


def systems_text(systems: pandas.DataFrame) -> str:
    """Return the systems as a table for the screen."""
    columns = [
        ["-" if pandas.isna(value) else form.format(value) for value in systems[name]] for name, _, form in SHOWN
    ]
    right = [number for number, (name, _, _) in enumerate(SHOWN) if TYPES[name] != "string"]
    names = [name for name, _, _ in SHOWN]
    above = {names.index(name): "batch {}" if name == "global_batch_size" else "{}" for name in ABOVE}
    above |= {names.index("errors"): "errors {}", names.index("warnings"): "questions {}"}
    head = [title for _, title, _ in SHOWN]
    return table_text(head, list(zip(*columns, strict=True)), right=right, above=above)
