"""Which command the arguments name, with which options."""

import pytest

from benchmark.commands.command_table import parse
from benchmark.commands.plan_commands import PlanCommand, PlannedRun
from benchmark.commands.run_commands import MachinePreflightCommand, PreflightCommand, ScheduleCommand
from stage.errors import InputError

ABOUT_DEALT_OUT_RUNS = ("train", "evaluate", "plan", "preflight")
DO_NOT_FIT = ["gpt3_175b", "--global-batch-size", "1537"]


@pytest.mark.parametrize("name", ABOUT_DEALT_OUT_RUNS)
def test_sizes_that_do_not_fit_the_devices_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="global_batch_size 1537 is not a multiple"):
        parse([name, *DO_NOT_FIT])


def test_schedule_takes_any_sizes() -> None:
    made = parse(["schedule", *DO_NOT_FIT])
    assert isinstance(made, ScheduleCommand)
    assert made.config.benchmark.global_batch_size == 1537


def test_fp8_is_a_precision_of_a_plan_alone() -> None:
    planned = parse(["plan", "gpt3_175b", "--stack", "nemo", "--precision", "fp8"])
    assert isinstance(planned, PlanCommand)
    assert isinstance(planned.config, PlannedRun)
    assert planned.config.precision == "fp8"
    with pytest.raises(InputError, match="--precision"):
        parse(["train", "gpt3_175b", "--precision", "fp8"])


def test_a_search_takes_devices_that_the_given_layout_does_not_fill() -> None:
    assert isinstance(parse(["plan", "gpt3_175b", "--nodes", "5", "--search"]), PlanCommand)


def test_preflight_without_a_benchmark_checks_the_machine() -> None:
    assert parse(["preflight", "--json"]) == MachinePreflightCommand(json=True)
    named = parse(["preflight", "rehearsal", "--json"])
    assert isinstance(named, PreflightCommand)
    assert named.json


@pytest.mark.parametrize(
    "words",
    [["report", "--output"], ["package", "--org"], ["describe-system", "--out-put", "x"], ["rehearse", "--seed", "x"]],
    ids=" ".join,
)
def test_missing_unknown_and_wrong_options_are_named(words: list[str]) -> None:
    with pytest.raises(InputError, match=words[1]):
        parse(words[:1] if words[1] in ("--output", "--org") else words)
