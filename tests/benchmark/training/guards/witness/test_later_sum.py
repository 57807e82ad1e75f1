"""Sums over processes that are asked for later."""

import torch
import torch.distributed as dist

from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.guards.witness.later_sum import LaterSum
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import in_processes


def _sums() -> list[list[float]]:
    with joined_world(system_of(2), read_environment()) as world:
        first = LaterSum(torch.tensor([2.0**40 + world.rank, 0.5], dtype=torch.float64), world)
        other = torch.tensor([1.0 + world.rank])
        dist.all_reduce(other)  # what training sends meanwhile
        second = LaterSum(torch.tensor([float(world.rank)], dtype=torch.float64), world)
        return [first.result().tolist(), second.result().tolist(), other.tolist()]


def test_messages_in_between_are_not_mixed_up() -> None:
    assert in_processes(2, _sums) == [[[2.0**41 + 1, 1.0], [1.0], [3.0]]] * 2
