"""The processes of a run: their environment, their process group, their devices."""

import datetime
import os
import re
import resource
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _set_pg_timeout

from benchmark.config.system_config import System
from benchmark.machine.process_setup import gloo_environment, keep_near, raise_file_limit
from foundation.errors import InputError
from model.sharding import AXES

TIMES_START_LIMIT = 2
"""Factor from the start limit to PyTorch's own time limit, which must come after the watchdog's (launch/heartbeat.py):
its message says more."""


BACKGROUND = "background:"
"""Prefix of the names of threads that exchange messages with other processes while training goes on."""


class MeetingFailed(InputError):
    """The processes did not come together."""


@dataclass(frozen=True)
class Environment:
    """The environment variables of a run. They are read here and nowhere else; torchrun sets them, or run_gpt3.sh under
    Slurm."""

    rank: int
    """RANK: number of this process; 0 if unset."""
    world_size: int
    """WORLD_SIZE: number of processes; 1 if unset."""
    local_rank: int
    """LOCAL_RANK: number of this process on its machine, which is also its device's number."""
    address: str = "localhost"
    """MASTER_ADDR and MASTER_PORT: where the processes meet rank 0 (or torchrun); used in messages."""
    attempt: str = "0001"
    """ATTEMPT: the launcher's name for one start of all processes; if unset, a name made from torchrun's
    TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT, or else from the process id."""
    launch: str | None = None
    """LAUNCH_ID, SLURM_JOB_ID or TORCHELASTIC_RUN_ID: the same in all attempts of one launch or job."""
    job: str | None = None
    """SLURM_JOB_ID: the Slurm job, if any."""
    launched_s: float | None = None
    """LAUNCHED_S: time when the launcher started this attempt, in seconds since the epoch."""
    submitted_s: float | None = None
    """SUBMITTED_S: time when the job was submitted or requeued, in seconds since the epoch."""
    host: str = field(default_factory=socket.gethostname)
    """NODE_NAME: Slurm's name for this machine; if unset, its host name."""
    visible_gpus: int | None = None
    """Number of devices in CUDA_VISIBLE_DEVICES; None if unset. Slurm may give each process one device of its own."""


def read_environment() -> Environment:
    """Read the environment variables. Raises InputError for a value that is not a number or out of range."""
    try:
        rank, size, local_rank = (
            int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
        )
        if not (0 <= rank < size and local_rank >= 0):
            raise ValueError(f"RANK={rank} WORLD_SIZE={size} LOCAL_RANK={local_rank}")
    except ValueError as error:
        raise InputError(f"environment: {error}; expected 0 <= RANK < WORLD_SIZE and LOCAL_RANK >= 0") from None
    if size > 1 and not ("MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ):
        raise InputError(f"environment: WORLD_SIZE={size} needs MASTER_ADDR and MASTER_PORT")
    address = f"{os.environ.get('MASTER_ADDR', 'localhost')}:{os.environ.get('MASTER_PORT', '-')}"
    job, elastic = os.environ.get("SLURM_JOB_ID"), os.environ.get("TORCHELASTIC_RUN_ID")
    named = elastic if elastic != "none" else None  # what torchrun calls every run that was not given a name
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return Environment(
        rank,
        size,
        local_rank,
        address,
        attempt=_attempt(elastic),
        launch=os.environ.get("LAUNCH_ID") or job or named,
        job=job,
        launched_s=_seconds("LAUNCHED_S"),
        submitted_s=_seconds("SUBMITTED_S"),
        host=os.environ.get("NODE_NAME") or socket.gethostname(),
        visible_gpus=None if visible is None else len([one for one in visible.split(",") if one]),
    )


def _attempt(elastic: str | None) -> str:
    """Return a name that all processes of this start share, and no other start has."""
    if given := os.environ.get("ATTEMPT"):
        if not re.fullmatch(r"[\w.-]{1,100}", given):
            raise InputError(f"environment: ATTEMPT={given}: expected letters, digits, dots and dashes")
        return given
    if elastic is not None:
        return re.sub(r"[^\w.-]", "_", f"torchrun-{elastic}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}")
    return f"process-{os.environ.get('SLURM_JOB_ID') or os.getpid()}-{os.environ.get('SLURM_STEP_ID', '0')}"


def _seconds(name: str) -> float | None:
    try:
        return float(os.environ[name])
    except KeyError:
        return None
    except ValueError:
        raise InputError(f"environment: {name}={os.environ[name]}: expected seconds since the epoch") from None


def set_environment(variables: Mapping[str, str]) -> None:
    """Set variables for libraries that are loaded into this process; variables that are set already stay."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


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

    @property
    def data_rank(self) -> int:
        """Index of the data-parallel part of the global batch that this process reads."""
        return self.mesh["replicate"].get_local_rank() * self.mesh["shard"].size() + self.mesh["shard"].get_local_rank()

    @property
    def data_parallel(self) -> int:
        """Number of parts that the global batch is divided into."""
        return self.mesh["replicate"].size() * self.mesh["shard"].size()

    @property
    def reads_tokens(self) -> bool:
        """True if this process has an end of the model, which needs tokens or labels."""
        pipeline = self.mesh["pipeline"]
        return pipeline.get_local_rank() in (0, pipeline.size() - 1)

    @property
    def loss_copies(self) -> int:
        """Number of processes that compute the same token losses: the tensor-parallel ranks of the last stage."""
        return self.mesh["tensor"].size()

    def peak_memory_bytes(self) -> int:
        """Return the most memory held so far: the device's, or the whole process's if the device is a CPU."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def from_rank_0(self, value: int) -> int:
        """Return rank 0's value. Collective."""
        shared = torch.tensor(value, dtype=torch.int64, device=self.device)
        dist.broadcast(shared, src=0)
        return int(shared.item())

    def hosts(self) -> list[str]:
        """Return the names of the machines, by rank. Collective."""
        found: list[str] = [""] * self.size
        dist.all_gather_object(found, self.host)
        return found

    def barrier(self) -> None:
        dist.barrier()


@contextmanager
def joined_world(
    system: System, environment: Environment, timeout: datetime.timedelta | None = None
) -> Iterator[World]:
    """Join the process group of the run, and leave it when the block ends well.

    After an exception the group is not left: leaving would wait for the other processes, which wait for this one. It is
    not left either while the background uses it, for example while a checkpoint hangs: leaving would wait for the
    background.

    Raises InputError if the number of processes is not the system's or the device does not exist, MeetingFailed if the
    meeting point is not available.
    """
    timeout = timeout or datetime.timedelta(seconds=TIMES_START_LIMIT * system.start_limit_s)
    if environment.world_size != system.num_devices:
        raise InputError(
            f"system {system.name} has {system.nodes} x {system.devices_per_node} = {system.num_devices} devices, but "
            f"{environment.world_size} processes were started; start that many (torchrun --nproc-per-node "
            f"{system.devices_per_node}), or change --nodes and --devices-per-node"
        )
    raise_file_limit()
    set_environment(gloo_environment(system.nodes, environment.address.rpartition(":")[0]))
    device = device_of(system, environment)
    backend = "gloo" if device.type == "cpu" else "cuda:nccl,cpu:gloo"
    try:
        if environment.world_size == 1:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
        else:
            gpu = device if device.type == "cuda" else None
            dist.init_process_group(backend, init_method="env://", timeout=timeout, device_id=gpu)
    except dist.DistNetworkError as error:
        reason = "in use" if "EADDRINUSE" in str(error) else "not reachable"
        raise MeetingFailed(
            f"rank {environment.rank}: {environment.address} is {reason}; set MASTER_PORT to a free port of rank 0's "
            "machine and MASTER_ADDR to its name"
        ) from error
    except dist.DistStoreError as error:
        raise MeetingFailed(
            f"rank {environment.rank}: not all {environment.world_size} processes came to {environment.address} within "
            f"{timeout.total_seconds():g} s; see which of them did not start"
        ) from error
    mesh = build_mesh(system, device.type, tensor_options(system))
    for axis in AXES:  # PyTorch 2.13 gives groups that it splits off 30 minutes of their own
        _set_pg_timeout(timeout, mesh.get_group(axis))
    yield World(environment.rank, environment.world_size, device, mesh, environment.host)
    if not any(thread.name.startswith(BACKGROUND) for thread in threading.enumerate()):
        dist.destroy_process_group()


def build_mesh(system: System, device_type: str, tensor_options: Any = None) -> DeviceMesh:
    """Build the mesh of all processes. ``tensor_options``: of the communicators of tensor-parallel ranks, if they have
    others than the rest.

    Ranks that communicate most, the tensor-parallel ones, are next to each other; pipeline stages are farthest apart.
    The axes of the mesh have another order: the one in which parameters are cut.
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


def device_of(system: System, environment: Environment) -> torch.device:
    """Return this process's device: the one with its number, or its only visible one if Slurm gave it one of its own.

    The process is bound to the cores near it. Raises InputError when the device does not exist.
    """
    if system.device == "cpu":
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // system.devices_per_node))
        return torch.device("cpu")
    count = torch.cuda.device_count()
    index = 0 if environment.visible_gpus == count == 1 else environment.local_rank
    if index >= count:
        raise InputError(
            f"system {system.name} needs {system.devices_per_node} CUDA devices per machine; PyTorch sees "
            f"{count} here. Choose a CPU system such as --system cpu_p1, or mend the driver"
        )
    device = torch.device("cuda", index)
    addresses = [pci_address(torch.device("cuda", number)) for number in range(count)]
    near = keep_near(addresses[index], addresses)
    if near:
        torch.set_num_threads(min(torch.get_num_threads(), len(near)))
    torch.cuda.set_device(device)  # after it is bound: this allocates memory of the host and starts threads
    # A product that cuBLAS splits is to be summed in FP32, as all others are. On an H100 this changed neither bits nor
    # time of any of the benchmark's products (docs/notes/hopper.md).
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    leave_multiprocessors(system.collectives.sm_carveout)
    return device


def leave_multiprocessors(number: int) -> None:
    """Have matrix products leave so many multiprocessors to messages; 0: none, and cuBLAS as PyTorch chooses it."""
    if number:
        torch.backends.cuda.preferred_blas_library("cublaslt")  # cuBLAS itself takes all
        torch._C._set_sm_carveout_experimental(number)


def pci_address(device: torch.device) -> str:
    """Return an address such as "0000:1b:00.0"; empty if PyTorch does not know it."""
    properties = torch.cuda.get_device_properties(device)
    domain, bus, number = (getattr(properties, f"pci_{name}_id", None) for name in ("domain", "bus", "device"))
    return "" if None in (domain, bus, number) else f"{domain:04x}:{bus:02x}:{number:02x}.0"
