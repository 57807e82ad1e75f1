"""The environment variables of a rank, read in one place."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmark.config.system_config import System
from foundation.errors import InputError


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
    agent_store: bool = False
    """TORCHELASTIC_USE_AGENT_STORE: True if torchrun hosts the store at which the processes meet."""
    lease: str | None = None
    """LEASE: token of the launcher's lease; None without a launcher."""
    threads: int | None = None
    """OMP_NUM_THREADS: threads of a process on a CPU; None if unset."""

    def require_one_for_each_device(self, system: System) -> None:
        """Raise InputError if the number of processes is not that of the system's devices."""
        if self.world_size != system.num_devices:
            started = "1 process was" if self.world_size == 1 else f"{self.world_size} processes were"
            raise InputError(
                f"system {system.name} has {system.nodes} x {system.devices_per_node} = {system.num_devices} devices, "
                f"but {started} started; start that many "
                f"(torchrun --nproc-per-node {system.devices_per_node}), or change --nodes and --devices-per-node"
            )


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
        lease=os.environ.get("LEASE"),
        job=job,
        launched_s=_seconds("LAUNCHED_S"),
        submitted_s=_seconds("SUBMITTED_S"),
        host=os.environ.get("NODE_NAME") or socket.gethostname(),
        visible_gpus=None if visible is None else len([name for name in visible.split(",") if name]),
        agent_store=os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        threads=_threads(),
    )


def _attempt(elastic: str | None) -> str:
    """Return a name that all processes of this start share, and no other start has."""
    if attempt := os.environ.get("ATTEMPT"):
        if not re.fullmatch(r"[\w.-]{1,100}", attempt):
            raise InputError(f"environment: ATTEMPT={attempt}: expected letters, digits, dots and dashes")
        return attempt
    if elastic is not None:
        return re.sub(r"[^\w.-]", "_", f"torchrun-{elastic}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}")
    return f"process-{os.environ.get('SLURM_JOB_ID') or os.getpid()}-{os.environ.get('SLURM_STEP_ID', '0')}"


def _threads() -> int | None:
    text = os.environ.get("OMP_NUM_THREADS", "")
    first = text.partition(",")[0]  # numbers for nested parallel regions may follow
    if not text or (first.isdecimal() and int(first) > 0):
        return int(first) if text else None
    raise InputError(f"environment: OMP_NUM_THREADS={text}: expected a number of threads from 1")


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
