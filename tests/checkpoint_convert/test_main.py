"""The commands: help with an example; what is no command or option is refused in a line."""

import pytest

from tests.support import assert_refused, command

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


def test_what_is_no_command_or_option_is_refused() -> None:
    assert_refused(command("checkpoint_convert", "convert"), "unknown command 'convert'; ")
    assert_refused(command("checkpoint_convert", "plan", "--heads", "4"), "(see --help)")
    assert_refused(command("checksums", "sign"), "unknown command 'sign'; there are create, verify")
    assert command("checksums").stdout.startswith("usage: python -m checksums COMMAND")
