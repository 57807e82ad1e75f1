"""Columns: documented, unique, stable."""

import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from benchmark.results_table.columns import COLUMNS, NAMES
from tests.benchmark.report.runs import write_run
from tests.benchmark.results_table.places import without_official_tools
from tests.support import REPOSITORY

PAGE = REPOSITORY / "docs" / "results.md"
OFFICIAL = (
    "division", "availability", "submitter", "system", "number_of_nodes", "host_processor_model_name",
    "host_processors_count", "accelerator_model_name", "accelerators_count", "framework", "notes",
)  # fmt: skip
"""Of the official result summarizer's table, in its order."""


def test_names_are_unique_and_those_of_the_official_table() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert [name for name in NAMES if name in OFFICIAL] == list(OFFICIAL)
    assert all(re.fullmatch(r"(gpt3:)?[A-Za-z][A-Za-z0-9_]*", name) for name in NAMES)


def test_page_lists_every_column_with_its_kind_and_meaning() -> None:
    rows = re.findall(r"(?m)^\| `([\w:]+)` \| (\w+) \| (.*?) \|", PAGE.read_text())
    assert rows == [(one.name, one.kind, one.meaning) for one in COLUMNS], (
        "write the table of docs/results.md anew: python -m tests.benchmark.results_table.column_table"
    )


@pytest.mark.slow
def test_the_notebook_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, on a made-up run."""
    without_official_tools(monkeypatch)
    matplotlib.use("agg")
    write_run(tmp_path / "runs" / "rehearsal" / "run_0")
    monkeypatch.chdir(tmp_path)
    (notebook,) = re.findall(r"(?s)```python\n(.*?)```", PAGE.read_text())
    names: dict[str, Any] = {}
    exec(notebook, names)
    assert len(names["steps"]) == 12
    assert list(names["mine"]["row"]) == ["system", "run"]
    assert len(names["published"]) == 13
