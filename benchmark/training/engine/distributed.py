"""The world of a run: its process group, and the place of each rank in the mesh."""

import datetime
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from benchmark.config.system_config import System
from benchmark.training.engine.meeting_point import MeetingFailed, meeting_failed, meeting_point
from benchmark.training.engine.rank_device import device_of
from benchmark.training.engine.rank_environment import Environment, set_environment
from benchmark.training.engine.rank_messages import all_messages
from benchmark.training.machine.process_setup import gloo_environment, raise_file_limit
from foundation.this_machine import peak_memory_bytes
from model.sharding import AXES

set_timeout: Callable[[datetime.timedelta, dist.ProcessGroup], None] = (
    getattr(dist, "set_timeout", None) or distributed_c10d._set_pg_timeout
)
"""PyTorch has the public name from 2.15 on, and warns where the other is called."""
TIMES_START_LIMIT = 2
"""Factor from the start limit to PyTorch's own time limit, which must come after the watchdog's (launch/heartbeat.py):
its message says more."""


BACKGROUND = "background:"
"""Prefix of the names of threads that exchange messages with other processes while training goes on."""


@dataclass(frozen=True)
class World:
    """All processes of the run, as seen by this one."""

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh
    """Mesh over all processes, with the axes pipeline, replicate, tensor and shard (model/sharding.py)."""
    host: str = "localhost"
    """Name of this machine, for messages."""

    def axis_size(self, axis: str) -> int:
        """Return the number of ranks along an axis. PyTorch 2.15 keeps some memory for every slice of a mesh."""
        return self.mesh.size(AXES.index(axis))

    @property
    def data_rank(self) -> int:
        """Index of the data-parallel part of the global batch that this process reads."""
        return self.mesh.get_local_rank("replicate") * self.axis_size("shard") + self.mesh.get_local_rank("shard")

    @property
    def data_parallel(self) -> int:
        """Number of parts that the global batch is divided into."""
        return self.axis_size("replicate") * self.axis_size("shard")

    @property
    def reads_tokens(self) -> bool:
        """True if this rank has the embedding or the output, which need tokens or labels."""
        return self.mesh.get_local_rank("pipeline") in (0, self.axis_size("pipeline") - 1)

    @property
    def loss_copies(self) -> int:
        """Number of ranks that compute the same token losses: the tensor-parallel ranks of the last pipeline stage."""
        return self.axis_size("tensor")

    def peak_memory_bytes(self) -> int:
        """Return the most memory held so far: the device's, or the whole process's if the device is a CPU."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return peak_memory_bytes()

    def from_rank_0(self, value: int) -> int:
        """Return rank 0's value. Collective."""
        shared = torch.tensor(value, dtype=torch.int64, device=self.device)
        dist.broadcast(shared, src=0)
        return int(shared.item())

    def hosts(self) -> list[str]:
        """Return the names of the machines, by rank. Collective."""
        return all_messages(self.host, str)

    def barrier(self) -> None:
        dist.barrier()


@contextmanager
def joined_world(
    system: System, environment: Environment, timeout: datetime.timedelta | None = None
) -> Iterator[World]:
    """Join the process group of the run, and leave it when the block ends well.

    Leaving waits for the other ranks and for background threads that use the group. So the group is not left after an
    exception, when other ranks may wait for this one, nor while a background thread lives, such as a checkpoint's.

    Raises InputError if the number of processes is not the system's or the device does not exist, MeetingFailed if the
    meeting point is not available.
    """
    timeout = timeout or datetime.timedelta(seconds=TIMES_START_LIMIT * system.start_limit_s)
    environment.require_one_for_each_device(system)
    raise_file_limit()
    set_environment(gloo_environment(system.nodes, environment.address.rpartition(":")[0]))
    device = device_of(system, environment)
    backend = "gloo" if device.type == "cpu" else "cuda:nccl,cpu:gloo"
    try:
        dist.init_process_group(
            backend,
            store=meeting_point(environment, system.nodes, timeout),
            rank=environment.rank,
            world_size=environment.world_size,
            timeout=timeout,
            device_id=device if device.type == "cuda" and environment.world_size > 1 else None,
        )
    except dist.DistNetworkError as error:
        raise MeetingFailed(meeting_failed(environment, "not reachable")) from error
    except dist.DistStoreError as error:
        raise MeetingFailed(
            f"rank {environment.rank}: not all {environment.world_size} processes came to {environment.address} within "
            f"{timeout.total_seconds():g} s; see which of them did not start"
        ) from error
    mesh = build_mesh(system, device.type, tensor_options(system))
    for axis in AXES:  # PyTorch 2.13 gives groups that it splits off 30 minutes of their own
        set_timeout(timeout, mesh.get_group(axis))
    yield World(environment.rank, environment.world_size, device, mesh, environment.host)
    if not any(thread.name.startswith(BACKGROUND) for thread in threading.enumerate()):
        dist.destroy_process_group()


def build_mesh(system: System, device_type: str, tensor_options: Any = None) -> DeviceMesh:
    """Build the mesh of all ranks. ``tensor_options``: of the communicators of tensor-parallel ranks; None for the same
    options as on the other axes.

    The ranks that communicate most, the tensor-parallel ones, are next to each other; pipeline stages are farthest
    apart. The axes of the mesh have another order, in which parameters are cut.
    """
    shard = system.data_parallel // system.replicas
    by_distance = (system.pipeline_parallel, system.replicas, shard, system.tensor_parallel)
    ranks = torch.arange(system.num_devices).view(by_distance).transpose(2, 3)
    options = None if tensor_options is None else tuple((None, tensor_options if a == "tensor" else None) for a in AXES)
    return DeviceMesh(device_type, ranks, mesh_dim_names=AXES, backend_override=options)


def tensor_options(system: System) -> Any:
    """Return the NCCL options of tensor-parallel ranks' communicators; None if they are those of all others."""
    chosen = system.collectives
    if system.tensor_parallel == 1 or (chosen.nccl_ctas is None and not chosen.nccl_priority):
        return None
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=chosen.nccl_priority)
    if chosen.nccl_ctas is not None:
        options.config.max_ctas = chosen.nccl_ctas
    return options


def end_process(status: int) -> NoReturn:
    """Leave with ``status`` at once, after a process group was used.

    Gloo's threads may still hold the last collective's tensors; freeing those while Python shuts down aborts the
    process now and then (PyTorch 2.13), after all work is done.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
