"""The time of a conversion by the bytes that go through each machine's disk and network."""

import json
from collections.abc import Callable

import pytest

from checkpoint_convert.commands.conversion_commands import ConversionPlanCommand
from checkpoint_convert.conversion.conversion_plan import PlanTotals
from checkpoint_convert.conversion.plan_times import MachineRates, PlannedTime, planned_times
from stage.errors import InputError
from tests.checkpoint_convert.tiny import GIB


def totals(read: float, written: int) -> PlanTotals:
    return PlanTotals(1, written, read, 1.0, GIB, GIB, 1000.0, 0.0)


def test_from_disk_all_goes_through_it_and_from_a_bucket_at_the_same_time() -> None:
    minute = 60 * 10**9
    assert planned_times(totals(2.0 * minute, minute), [1, 4], MachineRates(1000.0, 500.0)) == [
        PlannedTime("disk", 1, 3.0, "disk"),
        PlannedTime("bucket", 1, 4.0, "network"),
        PlannedTime("disk", 4, 0.75, "disk"),
        PlannedTime("bucket", 4, 1.0, "network"),
    ]
    (_, bucket) = planned_times(totals(2.0 * minute, minute), [1], MachineRates(1000.0, 4000.0))
    assert (bucket.minutes, bucket.limited_by) == (1.0, "disk")


def test_the_benchmarks_own(capsys: pytest.CaptureFixture[str]) -> None:
    """What docs/checkpoint.md says."""
    ConversionPlanCommand(memory_limit="64GiB", workers=16, json=True).run()
    told = json.loads(capsys.readouterr().out)
    assert [(one["source"], one["nodes"], round(one["minutes"], 1), one["limited_by"]) for one in told["times"]] == [
        ("disk", 1, 75.7, "disk"),
        ("bucket", 1, 40.7, "disk"),
        ("disk", 8, 9.5, "disk"),
        ("bucket", 8, 5.1, "disk"),
    ]
    ConversionPlanCommand(memory_limit="64GiB", workers=16, nodes=(8,), network_mb_per_s=250).run()
    assert capsys.readouterr().out.splitlines()[-1].startswith("  from bucket  8 machines ")


@pytest.mark.parametrize(
    "command",
    [
        lambda: ConversionPlanCommand(nodes=(0,)),
        lambda: ConversionPlanCommand(network_mb_per_s=float("nan")),
        lambda: ConversionPlanCommand(disk_mb_per_s=0),
    ],
)
def test_numbers_out_of_range(command: Callable[[], ConversionPlanCommand]) -> None:
    with pytest.raises(InputError, match=r"--nodes|--network-mb-per-s|--disk-mb-per-s"):
        command().run()
