"""Commands that run the benchmark: what they take, and what they refuse."""

from pathlib import Path

from benchmark.commands.command_table import parse
from benchmark.commands.run_commands import MachinePreflightCommand, PreflightCommand
from tests.support import assert_refused, command


def test_preflight_without_a_benchmark_checks_the_machine() -> None:
    assert parse(["preflight"]) == MachinePreflightCommand(json=False)
    assert parse(["preflight", "--json"]) == MachinePreflightCommand(json=True)
    named = parse(["preflight", "rehearsal", "--json"])
    assert isinstance(named, PreflightCommand)
    assert named.json


def test_next_attempt_needs_the_folder_of_a_run(tmp_path: Path) -> None:
    assert_refused(command("benchmark", "next-attempt", tmp_path / "none", "--status", "1"), "none: no such folder")
