"""Exports of what is no checkpoint are refused in a line."""

from pathlib import Path

import pytest

from tests.checkpoint_convert.in_process import run


@pytest.mark.parametrize("name", ["to-huggingface", "to-torch-dist"])
def test_a_folder_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    run(name, "--input", tmp_path / "none", "--output", tmp_path / "out").refused("none: no such folder")
    assert list(tmp_path.iterdir()) == []
