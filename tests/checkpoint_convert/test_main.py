"""The commands: help with an example."""

import pytest

from tests.support import command

COMMANDS = {
    "checkpoint_convert": "paxml-to-megatron megatron-to-paxml plan to-huggingface to-torch-dist inspect compare "
    "random-paxml",
    "checksums": "create verify",
}


@pytest.mark.parametrize("module", COMMANDS)
def test_help_of_every_command_has_its_example(module: str) -> None:
    listed = command(module, "--help").stdout
    for name in COMMANDS[module].split():
        assert f" {name} " in listed
        text = " ".join(command(module, name, "--help").stdout.replace("│", " ").split())
        assert f"Example: python -m {module} {name}" in text


def test_without_a_command_the_commands_are_listed() -> None:
    assert command("checksums").stdout.startswith("usage: python -m checksums COMMAND")
