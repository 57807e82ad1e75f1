"""The commands by name."""

import pytest

from tests.support import assert_refused, command


def test_unknown_commands_are_refused() -> None:
    assert_refused(command("data_prep", "tokenise"), "tokenise")


@pytest.mark.parametrize("name", ["plan", "fetch", "preprocess", "samples", "inspect", "blend", "merge"])
def test_every_command_has_help_with_an_example(name: str) -> None:
    done = command("data_prep", name, "--help")
    assert done.returncode == 0
    assert f"Example: python -m data_prep {name} " in " ".join(done.stdout.replace("│", " ").split())
