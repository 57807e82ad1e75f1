"""Commands run in the test's own process, as a user's words and with what he sees."""

import contextlib
import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from unittest import mock

import pytest

from checkpoint_convert.commands.export_commands import ToHuggingfaceCommand, ToTorchDistCommand
from checkpoint_convert.commands.inspection_commands import CompareCheckpointsCommand, InspectCheckpointCommand
from checksums.list_commands import CreateListCommand, VerifyListCommand
from stage.cli import Command, run_subcommand
from stage.errors import run_command

COMMANDS: Mapping[str, type[Command]] = {
    "inspect": InspectCheckpointCommand,
    "compare": CompareCheckpointsCommand,
    "to-huggingface": ToHuggingfaceCommand,
    "to-torch-dist": ToTorchDistCommand,
    "create": CreateListCommand,
    "verify": VerifyListCommand,
}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str

    def refused(self, *phrases: str, status: int = 2) -> None:
        """Assert that it ended with ``status`` and one line on standard error that holds ``phrases``."""
        assert self.returncode == status, self.stdout + self.stderr
        last = self.stderr.splitlines()[-1]
        assert last.startswith("error: ")
        for phrase in phrases:
            assert phrase in last, last


def run(*words: object) -> Done:
    """Run one of COMMANDS."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    arguments = ["command", *(str(word) for word in words)]
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", arguments),
        mock.patch("faulthandler.enable"),  # wants a file of the system's
        pytest.raises(SystemExit) as leaving,
    ):
        run_command(lambda: run_subcommand("checkpoint_convert", None, COMMANDS))
    for stream in (out, errors):
        stream.flush()
        stream.seek(0)
    return Done(int(leaving.value.code or 0), out.read(), errors.read())
