"""inspect and compare as commands: what they print, and how they end."""

import json
from pathlib import Path

import pytest

from checkpoint_convert.commands.inspection_commands import CompareCheckpointsCommand, InspectCheckpointCommand
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from stage.errors import CheckFailed


def test_two_checkpoints_are_the_same_or_what_differs_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ModelSizes(layers=1, hidden=6, heads=2, vocab=210)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_random_paxml(tmp_path / name, sizes=sizes, seed=seed)
    CompareCheckpointsCommand(tmp_path / "a", tmp_path / "b", json=True).run()
    assert json.loads(capsys.readouterr().out)
    with pytest.raises(CheckFailed):
        CompareCheckpointsCommand(tmp_path / "a", tmp_path / "c").run()
    capsys.readouterr()
    InspectCheckpointCommand(tmp_path / "a", json=True).run()
    assert json.loads(capsys.readouterr().out)
