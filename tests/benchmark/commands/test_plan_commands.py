"""Options of plan: precisions of other codes, and a search that needs no layout that fits."""

import pytest

from benchmark.commands.command_table import parse
from benchmark.commands.plan_commands import PlanCommand, PlannedRun
from stage.errors import InputError


def test_fp8_is_a_precision_of_a_plan_alone() -> None:
    planned = parse(["plan", "gpt3_175b", "--stack", "nemo", "--precision", "fp8"])
    assert isinstance(planned, PlanCommand)
    assert isinstance(planned.config, PlannedRun)
    assert planned.config.precision == "fp8"
    with pytest.raises(InputError, match="--precision"):
        parse(["train", "gpt3_175b", "--precision", "fp8"])


def test_a_search_takes_devices_that_the_given_layout_does_not_fill() -> None:
    assert isinstance(parse(["plan", "gpt3_175b", "--nodes", "5", "--search"]), PlanCommand)
