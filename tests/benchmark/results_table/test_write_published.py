"""The table of published runs is made from rounds, and holds facts alone."""

import csv
from pathlib import Path

import pytest

from benchmark.results_table.write_published import PUBLISHED, write_published
from stage.errors import InputError
from tests.benchmark.results_table.places import write_round


def test_facts_of_a_round_stand_in_it_once(tmp_path: Path) -> None:
    folder = write_round(tmp_path / "training_results_v4.1", ["B", "A"])
    assert write_published([folder], tmp_path / "p.csv") == 0
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["package"], row["row"]) for row in rows] == [
        (name, row) for name in "AB" for row in ("system", *["run"] * 3)
    ]
    assert rows[0]["accelerators_count"] == "512"
    assert rows[1]["accelerators_count"] == ""
    assert rows[0]["evaluation_values"] == ""
    assert str(tmp_path) not in (tmp_path / "p.csv").read_text()
    assert not {"errors", "passed", "problem", "path"} & {column.name for column in PUBLISHED}


def test_folder_without_packages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results of gpt3 below the folders"):
        write_published([tmp_path], tmp_path / "p.csv")
