"""Which command the arguments name, with which options."""

import pytest

from benchmark.commands.command_table import parse
from benchmark.commands.run_commands import ScheduleCommand
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
