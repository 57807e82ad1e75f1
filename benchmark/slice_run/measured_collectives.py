"""What messages between the devices of this machine take, by kind and size."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from benchmark.planning.run_plans.calibration import CollectiveKind, CollectiveTime
from benchmark.slice_run.stopwatch import seconds_for, synchronize
from benchmark.training.engine.distributed import World
from model.passes.tensor_group import all_gather_single, reduce_scatter_single

CALLS = 5
SIZES = {"cuda": tuple(4**power << 16 for power in range(7)), "cpu": (1 << 16, 1 << 20)}
"""Bytes of the larger side: from 64 KiB to 256 MiB, where a micro-batch's hidden state is 48 MiB at full width."""


def collective_times(world: World) -> list[CollectiveTime]:
    """Equal on all ranks; none where there is one. Collective."""
    if world.size == 1:
        return []
    found = []
    for size in SIZES[world.device.type]:
        for kind, call in _calls(world, size).items():
            call()
            synchronize(world.device)
            world.barrier()
            seconds = seconds_for(world.device, CALLS, call) / CALLS
            slowest = torch.tensor(seconds, dtype=torch.float64, device=world.device)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            found.append(CollectiveTime(kind, 2 if kind == "send" else world.size, size, slowest.item()))
    return found


def _calls(world: World, size: int) -> dict[CollectiveKind, Callable[[], object]]:
    """By kind, on BF16 numbers."""
    count = size // 2 // world.size * world.size
    whole = torch.zeros(count, dtype=torch.bfloat16, device=world.device)
    part = torch.zeros(count // world.size, dtype=torch.bfloat16, device=world.device)
    return {
        "all-gather": lambda: all_gather_single(whole, part),
        "reduce-scatter": lambda: reduce_scatter_single(part, whole),
        "all-reduce": lambda: dist.all_reduce(whole),
        "send": lambda: _send(world, whole),
    }


def _send(world: World, message: torch.Tensor) -> None:
    """From each even rank to the next."""
    partner = world.rank ^ 1
    if partner >= world.size:
        return
    operation = dist.P2POp(dist.irecv if world.rank % 2 else dist.isend, message, partner)
    for work in dist.batch_isend_irecv([operation]):
        work.wait()
