"""The commands: each has its help with an example, and errors are one line."""

import pytest

from benchmark.__main__ import main
from benchmark.commands.command_table import COMMANDS
from tests.support import assert_refused, command

ABOUT_RUNS = ("train", "evaluate", "schedule", "plan", "preflight")


def test_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Run, evaluate and review the benchmark: python -m benchmark COMMAND --help\n")
    assert [line.split()[0] for line in shown.splitlines()[2:]] == list(COMMANDS)
    assert {"train", "evaluate", "review", "report", "reference-points"} <= set(COMMANDS)
    assert main([]) == 2
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main([name, "--help"])
    assert leaving.value.code == 0
    _, found, example = " ".join(capsys.readouterr().out.split()).partition("Example: ")
    assert found
    assert f"-m benchmark {name}" in example


@pytest.mark.parametrize("name", ABOUT_RUNS)
def test_commands_about_runs_list_the_overrides(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main([name, "rehearsal", "--help"])
    assert leaving.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: python -m benchmark {name} rehearsal" in shown
    assert "--global-batch-size" in shown
    assert "Example: " in shown


def test_program_prints_errors_in_one_line() -> None:
    assert_refused(command("benchmark", "trian"), "unknown command 'trian'; there are train, evaluate")
    done = command("benchmark", "--help")
    assert (done.returncode, "reference-points" in done.stdout, done.stderr) == (0, True, "")
