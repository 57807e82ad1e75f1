"""The commands by name."""

from pathlib import Path

import pytest

from tests.speed.fuzz_data_prep import prepare, try_case
from tests.support import assert_refused, command


def test_unknown_commands_are_refused() -> None:
    assert_refused(command("data_prep", "tokenise"), "tokenise")


@pytest.mark.parametrize("name", ["plan", "fetch", "preprocess", "samples", "inspect", "blend", "merge"])
def test_every_command_has_help_with_an_example(name: str) -> None:
    done = command("data_prep", name, "--help")
    assert done.returncode == 0
    assert f"Example: python -m data_prep {name} " in " ".join(done.stdout.replace("│", " ").split())


@pytest.mark.slow
def test_random_commands_over_damaged_files(tmp_path: Path) -> None:
    """A few; ``python -m tests.speed.fuzz_data_prep`` tries as many as one likes."""
    prepare(tmp_path / "sources")
    for seed in range(12):
        (tmp_path / str(seed)).mkdir()
        found = try_case(seed, tmp_path / "sources", tmp_path / str(seed))
        assert found.problem is None, f"case {seed}: {found.problem}"
