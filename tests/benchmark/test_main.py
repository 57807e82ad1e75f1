"""The commands: each has its help with an example, and errors are one line."""

from pathlib import Path

import pytest

from benchmark.__main__ import COMMANDS, MachinePreflightCommand, PreflightCommand, ScheduleCommand, main, parse
from stage.errors import InputError
from tests.support import assert_refused, command

ABOUT_RUNS = ("train", "evaluate", "schedule", "plan", "preflight")
DO_NOT_FIT = ["gpt3_175b", "--global-batch-size", "1537"]


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
    assert_refused(command("benchmark", "trian"), "unknown command 'trian'; there are train, next-attempt, evaluate")
    assert_refused(command("benchmark", "report"), "--output")
    assert_refused(command("benchmark", "rehearse", "--seed", "many"), "--seed")
    done = command("benchmark", "--help")
    assert (done.returncode, "reference-points" in done.stdout, done.stderr) == (0, True, "")


@pytest.mark.parametrize("name", [name for name in ABOUT_RUNS if name != "schedule"])
def test_sizes_that_do_not_fit_the_devices_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="global_batch_size 1537 is not a multiple"):
        parse([name, *DO_NOT_FIT])


def test_schedule_takes_any_sizes() -> None:
    made = parse(["schedule", *DO_NOT_FIT])
    assert isinstance(made, ScheduleCommand)
    assert made.config.benchmark.global_batch_size == 1537


def test_preflight_without_a_benchmark_checks_the_machine() -> None:
    assert parse(["preflight"]) == MachinePreflightCommand(json=False)
    assert parse(["preflight", "--json"]) == MachinePreflightCommand(json=True)
    named = parse(["preflight", "rehearsal", "--json"])
    assert isinstance(named, PreflightCommand)
    assert named.json


def test_wrong_input_of_commands_about_attempts_and_drills_is_refused(tmp_path: Path) -> None:
    assert_refused(command("benchmark", "next-attempt", tmp_path / "none", "--status", "1"), "none: no such folder")
    assert_refused(command("benchmark", "drill", "--fuzz", "-1"), "fuzz -1: expected a number of runs")
