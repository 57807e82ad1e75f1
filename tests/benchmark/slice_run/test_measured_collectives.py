from typing import get_args

import pytest

from benchmark.planning.run_plans.calibration import CollectiveKind, CollectiveTime
from benchmark.slice_run.measured_collectives import SIZES, collective_times
from benchmark.slice_run.slice_config import SliceOptions, slice_config
from benchmark.training.engine.distributed import joined_world, read_environment
from tests.benchmark.tiny import in_processes


def timed(options: SliceOptions) -> list[CollectiveTime]:
    system = slice_config(options, 2, "").system
    with joined_world(system, read_environment()) as world:
        return collective_times(world)


@pytest.mark.slow
def test_all_ranks_have_the_slowest_rank_s_time_of_each_kind_and_size() -> None:
    first, second = in_processes(2, timed, SliceOptions("rehearsal", device="cpu", data_parallel=2))
    assert first == second
    assert [(one.kind, one.bytes) for one in first] == [
        (kind, size) for size in SIZES["cpu"] for kind in get_args(CollectiveKind)
    ]
    assert all(one.ranks == 2 and one.seconds > 0 for one in first)


def test_one_device_sends_nothing() -> None:
    assert in_processes(1, timed, SliceOptions("rehearsal", device="cpu")) == [[]]
