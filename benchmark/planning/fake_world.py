"""A world of any size in one process: collectives that send nothing, tensors that hold nothing.

What it needs of PyTorch beyond its public interface is here, and nowhere else (docs/facts/torch_distributed.md 5).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmark.config.run_config import System
from benchmark.training.engine.distributed import World, build_mesh


@contextmanager
def fake_world(system: System, rank: int) -> Iterator[World]:
    """The world as process ``rank`` of the system sees it. One per process: PyTorch keeps the names of its groups."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=system.num_devices)
    try:
        yield World(rank, system.num_devices, torch.device("cpu"), build_mesh(system, "cpu"))
    finally:
        dist.destroy_process_group()


def fake_tensors() -> FakeTensorMode:
    """Inside it, tensors have shapes and no values; those on the meta device stay as they are."""
    return FakeTensorMode(allow_non_fake_inputs=True)
