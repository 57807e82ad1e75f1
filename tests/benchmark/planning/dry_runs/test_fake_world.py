"""A world that is not there: ranks of any number, messages that arrive nowhere, tensors without memory."""

from typing import Any

import torch
import torch.distributed as dist

from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.fake_world import fake_world
from tests.benchmark.tiny import in_processes


def _seen(rank: int) -> dict[str, Any]:
    with fake_world(SYSTEMS["dgxh100_n8"], rank) as world:  # 64 devices: pipeline 8 x data 1 x tensor 8
        numbers = torch.ones(3)
        dist.all_reduce(numbers)
        axes = world.mesh.mesh_dim_names or ()
        return {
            "rank": (world.rank, world.size, dist.get_rank(), dist.get_world_size()),
            "coordinates": {axis: world.mesh[axis].get_local_rank() for axis in axes},
            "sum": numbers.tolist(),
        }


def test_the_world_as_one_of_many_sees_it() -> None:
    (seen,) = in_processes(1, _seen, 19)
    assert seen["rank"] == (19, 64, 19, 64)
    assert seen["coordinates"] == {"pipeline": 2, "replicate": 0, "shard": 0, "tensor": 3}
    assert seen["sum"] == [1.0, 1.0, 1.0]
    assert not dist.is_initialized()
