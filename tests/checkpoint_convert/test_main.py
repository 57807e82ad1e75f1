"""The commands: help with an example; what is no command or option is refused in a line."""

import pytest

from tests.support import assert_refused, command

COMMANDS = (
    "paxml-to-megatron",
    "megatron-to-paxml",
    "plan",
    "to-huggingface",
    "to-torch-dist",
    "inspect",
    "compare",
    "random-paxml",
)


def test_help_names_every_command() -> None:
    done = command("checkpoint_convert", "--help")
    assert done.returncode == 0
    assert all(f" {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_its_example(name: str) -> None:
    done = command("checkpoint_convert", name, "--help")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.replace("│", " ").split())
    assert f"Example: python -m checkpoint_convert {name}" in text


def test_what_is_no_command_or_option_is_refused() -> None:
    assert_refused(command("checkpoint_convert", "convert"), "unknown command 'convert'; ")
    assert_refused(command("checkpoint_convert", "plan", "--heads", "4"), "(see --help)")
