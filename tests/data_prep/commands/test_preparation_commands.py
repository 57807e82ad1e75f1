"""Fetch, as JSON."""

import json
from pathlib import Path

from data_prep.preparation.artifacts import ARTIFACTS
from tests.support import command


def test_fetch_lists_as_json(tmp_path: Path) -> None:
    done = command("data_prep", "fetch", "--output", tmp_path, "--list", "--json", "--what", "tokenizer")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [(file["name"], file["there"]) for file in found] == [(name, False) for name in ARTIFACTS["tokenizer"].files]
    assert all(file["what"] == "tokenizer" and file["origin"] for file in found)
