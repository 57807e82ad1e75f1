"""Write ``benchmark/results/published_runs.csv``: facts of published logs, without anything a review thinks of them.

python -m benchmark.results_table.write_published FOLDER… [--output FILE], where a folder holds rounds as they were
published: training_results_v4.1/SUBMITTER/{results,systems}.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmark.results.published_runs import PUBLISHED_RUNS
from benchmark.results.score import score
from benchmark.results.subjects import SubmissionPackage, ruleset_for
from benchmark.results_table.cell_values import round_number
from benchmark.results_table.columns import DESCRIPTION, IDENTITY, LOGGED, MEASURED, SCORES
from benchmark.results_table.reviewed_places import places_below
from benchmark.results_table.row_facts import SystemFacts
from benchmark.results_table.table_rows import Row, run_row_of, system_row
from benchmark.results_table.write_table import csv_text
from benchmark.review.verdict import SubjectReview
from stage.errors import InputError, run_command
from stage.outputs.publish import write_text

LEFT_OUT = ("path", "notes", "other_software_stack", "host_storage_type", "host_storage_capacity", "cooling")
"""What is of this machine, long, or of no use in comparing runs."""
PUBLISHED = tuple(
    column for column in (*IDENTITY, *DESCRIPTION, *SCORES, *MEASURED, *LOGGED) if column.name not in LEFT_OUT
)
IN_SYSTEM_ROW_ALONE = tuple(column.name for column in DESCRIPTION)
IN_RUN_ROW_ALONE = ("evaluation_tokens", "evaluation_values")


def published_rows(folders: Sequence[Path]) -> list[Row]:
    """A row per system and run of the packages below ``folders``, each fact once."""
    rows: list[Row] = []
    packages, _ = places_below(folders)
    for package in packages:
        for one in SubmissionPackage(package, ruleset_for(package, None)).sets:
            bare = SubjectReview("package", str(package), one.ruleset, (), (), (one,), ())
            facts = SystemFacts(bare, one, score(one))
            rows.append({**system_row(facts), **dict.fromkeys(IN_RUN_ROW_ALONE)})
            rows += ({**run_row_of(run), **dict.fromkeys(IN_SYSTEM_ROW_ALONE)} for run in facts.runs)
    if not rows:
        raise InputError("no results of gpt3 below the folders given; give rounds as they were published")
    return rows


def write_published(folders: Sequence[Path], output: Path) -> int:
    rows = [{name: round_number(value) for name, value in row.items()} for row in published_rows(folders)]
    rows.sort(key=lambda row: [str(row[name] or "") for name in ("round", "package", "system_folder", "file")])
    write_text(output, csv_text(rows, [column.name for column in PUBLISHED]))
    print(f"{output}: {len(rows)} rows, {output.stat().st_size:,} bytes")
    return 0


def console() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=PUBLISHED_RUNS)
    options = parser.parse_args(sys.argv[1:])
    return write_published(options.folders, options.output)


if __name__ == "__main__":
    run_command(console)
