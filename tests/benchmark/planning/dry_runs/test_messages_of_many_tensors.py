"""Messages of many tensors on the fake group: each tensor of them is sent, and one wait is enough."""

from typing import Any

import torch

from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.fake_world import fake_world
from benchmark.planning.dry_runs.rank_report import work_counts
from benchmark.planning.dry_runs.tracker import Tracker
from model.passes.whole_parameter import gather_all, scatter_all, sum_all
from tests.benchmark.tiny import in_processes


def _messages() -> dict[tuple[str, str], tuple[int, int]]:
    with fake_world(SYSTEMS["cpu_p2"], 1) as world:
        group = world.mesh["shard"].get_group()
        tracker, sizes = Tracker({group.group_name: "shard"}, None), (3, 5)
        with tracker:
            tracker.restart()
            works: list[Any] = [
                gather_all([(torch.zeros(2 * size), torch.zeros(size)) for size in sizes], group),
                scatter_all([(torch.zeros(size), torch.zeros(2 * size)) for size in sizes], group),
                sum_all([torch.zeros(size) for size in sizes], group),
            ]
            for work in works:
                work.wait()
        messages = work_counts(tracker.counts).messages
        return {
            (kind, axis): (
                sum(one.calls for one in messages if (one.kind, one.axis) == (kind, axis)),
                sum(one.calls * one.bytes for one in messages if (one.kind, one.axis) == (kind, axis)),
            )
            for kind, axis in {(one.kind, one.axis) for one in messages}
        }


def test_each_tensor_is_counted() -> None:
    (found,) = in_processes(1, _messages)
    assert found == {
        ("all-gather", "shard"): (2, 4 * 2 * (3 + 5)),
        ("reduce-scatter", "shard"): (2, 4 * 2 * (3 + 5)),
        ("all-reduce", "shard"): (2, 4 * (3 + 5)),
    }
