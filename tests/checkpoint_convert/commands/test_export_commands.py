"""Exports of what is no checkpoint are refused in a line."""

from pathlib import Path

import pytest

from checkpoint_convert.commands.export_commands import ToDcpCommand, ToHuggingfaceCommand, ToTorchDistCommand
from stage.errors import InputError


@pytest.mark.parametrize("export", [ToDcpCommand, ToHuggingfaceCommand, ToTorchDistCommand])
def test_a_folder_that_is_not_there_is_refused(
    export: type[ToDcpCommand | ToHuggingfaceCommand | ToTorchDistCommand], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="none"):
        export(input=tmp_path / "none", output=tmp_path / "out").run()
    assert list(tmp_path.iterdir()) == []
