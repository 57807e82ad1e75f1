"""Columns: documented, unique, stable."""

import re

from benchmark.results_table.columns import COLUMNS, NAMES
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
