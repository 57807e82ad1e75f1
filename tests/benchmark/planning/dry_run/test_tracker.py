"""What is counted of operations whose cost is known by hand."""

import dataclasses
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_run.rank_report import (
    AxisTraffic,
    KernelCount,
    MessageCount,
    ShapeCount,
    messages_of_step,
    split,
    traffic_of_step,
    work_counts,
)
from benchmark.planning.dry_run.tracker import Message, OperatorCounts, Tracker
from benchmark.planning.fake_device.fake_world import fake_world
from benchmark.planning.fake_device.operator_costs import MatmulShape
from model.passes.parameter_group import gather_all, scatter_all, sum_all
from tests.benchmark.tiny import in_processes


def test_memory_at_its_peak_and_what_is_left() -> None:
    with Tracker({}) as tracker:
        kept = torch.ones(1000)
        for _ in range(3):
            passing = kept + 1
            del passing
        assert (tracker.live_bytes, tracker.peak_bytes) == (4000, 8000)
        view = kept.view(10, 100)
        assert tracker.live_bytes == 4000
        tracker.restart()
        assert (tracker.peak_bytes, tracker.counts) == (4000, OperatorCounts())
        del kept
        assert tracker.live_bytes == 4000  # of which it is a view
        del view
        assert tracker.live_bytes == 0


Traffic = dict[tuple[str, str], tuple[int, int]]


def _traffic(tracker: Tracker) -> Traffic:
    found: Traffic = {}
    for message, calls in tracker.counts.messages.items():
        before = found.get((message.kind, message.axis), (0, 0))
        found[message.kind, message.axis] = before[0] + calls, before[1] + calls * message.bytes
    tracker.restart()
    return found


def _messages() -> tuple[Traffic, Traffic]:
    with fake_world(SYSTEMS["dgxh100_n8"], 0) as world:
        group, whole, sizes = world.mesh["tensor"].get_group(), torch.ones(1000), (3, 5)
        with Tracker({group.group_name: "tensor"}) as tracker:
            dist.all_reduce(whole)
            dist.all_reduce(whole, group=group)
            dist.all_gather_into_tensor(torch.ones(8000), whole, group=group)
            dist.reduce_scatter_tensor(whole, torch.ones(8000), group=group)
            dist.broadcast(whole, 0)
            dist.broadcast(whole, 0)
            dist.barrier()
            alone = _traffic(tracker)
            works: list[Any] = [
                gather_all([(torch.zeros(8 * size), torch.zeros(size)) for size in sizes], group),
                *scatter_all([(torch.zeros(size), torch.zeros(8 * size)) for size in sizes], group),
                sum_all([torch.zeros(size) for size in sizes], group),
            ]
            for work in works:
                work.wait()
            return alone, _traffic(tracker)


def test_messages_by_kind_and_axis() -> None:
    """Bytes of the larger side. A message of many tensors counts for each of them, and one wait is enough."""
    ((alone, many),) = in_processes(1, _messages)
    assert alone == {
        ("all-reduce", "all"): (1, 4000),
        ("all-reduce", "tensor"): (1, 4000),
        ("all-gather", "tensor"): (1, 32000),
        ("reduce-scatter", "tensor"): (1, 32000),
        ("broadcast", "all"): (2, 8000),
    }
    assert many == {
        ("all-gather", "tensor"): (2, 4 * 8 * (3 + 5)),
        ("reduce-scatter", "tensor"): (2, 4 * 8 * (3 + 5)),
        ("all-reduce", "tensor"): (2, 4 * (3 + 5)),
    }


SHAPE = MatmulShape(2, 3, 5, 1, "bfloat16", "float32")
GATHER, SUM = Message("all-gather", "tensor", 100), Message("all-reduce", "all", 8)


def counts(micro_batches: int) -> OperatorCounts:
    """Each micro-batch has four products and two gathers, one of them hidden; there is one sum, and one gather more."""
    return OperatorCounts(
        matmuls=Counter({SHAPE: 4 * micro_batches}),
        launches=Counter({"matmul": 4 * micro_batches, "elementwise": 3 * micro_batches - 1}),
        bytes=Counter({"elementwise": 50 * micro_batches - 7}),
        messages=Counter({GATHER: 2 * micro_batches + 1, SUM: 1}),
        alone=Counter({GATHER: micro_batches + 1, SUM: 1}),
        flops_beside=Counter({GATHER: 60 * micro_batches}),
    )


def test_two_steps_give_any() -> None:
    each, once = split(counts(4), counts(6), 4, 2)
    assert each.matmuls == [ShapeCount(SHAPE, 4)] and once.matmuls == []
    assert each.kernels == [KernelCount("matmul", 4, 0), KernelCount("elementwise", 3, 50)]
    assert once.kernels == [KernelCount("elementwise", -1, -7)]  # the first micro-batch has one less
    assert each.messages == [MessageCount("all-gather", "tensor", 100, calls=2, alone=1, flops_beside=60)]
    assert once.messages == [
        MessageCount("all-gather", "tensor", 100, calls=1, alone=1, flops_beside=0),
        MessageCount("all-reduce", "all", 8, calls=1, alone=1, flops_beside=0),
    ]
    received = dataclasses.replace(once, messages=[MessageCount("receive", "pipeline", 5, 1, 1, 0)])
    assert messages_of_step(each, once, 10)["all-gather", "tensor"] == MessageCount(
        "all-gather", "tensor", bytes=2100, calls=21, alone=11, flops_beside=600
    )
    assert traffic_of_step(each, received, 10) == [AxisTraffic("all-gather", "tensor", 20, 2000)]
    assert 10 * each.flops + once.flops == work_counts(counts(10)).flops == 10 * 4 * 60
