"""Commands that run the benchmark: what they take, and what they refuse."""

from benchmark.commands.command_table import parse
from benchmark.commands.run_commands import MachinePreflightCommand, PreflightCommand


def test_preflight_without_a_benchmark_checks_the_machine() -> None:
    assert parse(["preflight"]) == MachinePreflightCommand(json=False)
    assert parse(["preflight", "--json"]) == MachinePreflightCommand(json=True)
    named = parse(["preflight", "rehearsal", "--json"])
    assert isinstance(named, PreflightCommand)
    assert named.json
