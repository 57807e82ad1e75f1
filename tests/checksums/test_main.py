"""The commands by name."""

import pytest

from tests.support import assert_refused, command


def test_unknown_commands_are_refused() -> None:
    assert_refused(command("checksums", "sign"), "unknown command 'sign'; there are create, verify")
    done = command("checksums")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("usage: python -m checksums COMMAND")


@pytest.mark.parametrize("name", ["create", "verify"])
def test_every_command_has_help_with_an_example(name: str) -> None:
    done = command("checksums", name, "--help")
    assert done.returncode == 0
    assert f"Example: python -m checksums {name} " in " ".join(done.stdout.replace("│", " ").split())
