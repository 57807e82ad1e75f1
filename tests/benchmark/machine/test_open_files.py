"""How many files a process needs to have open, and raising the limit."""

import os
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from benchmark.config.system_config import System
from benchmark.machine.open_files import files_needed, raise_file_limit
from benchmark.training.engine.distributed import Environment, joined_world
from tests.benchmark.tiny import in_processes


def test_formula_at_full_size() -> None:
    """The docstring's table: 8 stages, 4 tensor-parallel ranks, 16 or 64 data-parallel parts."""
    assert files_needed((8, 1, 16, 4), gpus=True) == 2392
    assert files_needed((8, 1, 64, 4), gpus=True) == 7048


@pytest.mark.slow
def test_formula_covers_what_is_open(tmp_path: Path) -> None:
    """Sockets grow with the processes as it says; all of it is less than it says."""
    system = System(
        name="eight", device="cpu", nodes=1, devices_per_node=8, micro_batch_size=1, tensor_parallel=2
    )  # fmt: skip
    counted = in_processes(8, _count, system)
    sockets = [sockets for sockets, _ in counted]
    assert sockets[0] - max(sockets[1:]) >= 7  # rank 0's store
    assert min(sockets) >= 7 + 3 + 1
    assert max(total for _, total in counted) <= files_needed((1, 1, 4, 2), gpus=False)


def _count(system: System) -> tuple[int, int]:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with joined_world(system, Environment(rank, size, rank)) as world:
        for axis in world.mesh.mesh_dim_names or ():
            dist.all_reduce(torch.ones(1), group=world.mesh.get_group(axis))
        names = [_target(entry) for entry in Path("/proc/self/fd").iterdir()]
        world.barrier()
    return sum(name.startswith("socket:") for name in names), len(names)


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, resource.RLIM_INFINITY), (1 << 20, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_soft_limit_becomes_the_hard_one(
    before: tuple[int, int], after: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    raise_file_limit()
    assert set_to == ([] if after is None else [after])
