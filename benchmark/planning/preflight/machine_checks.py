"""Check one machine: software, limits, disks, clock, inputs."""

import os
import platform
import resource
import shutil
import socket
import tempfile
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from benchmark.config.runtime_variables import runtime_environment
from benchmark.planning.machine.hardware import ask
from benchmark.planning.preflight.preflight_check import (
    GPU,
    RUN,
    WORLD,
    CheckingProcess,
    CheckResult,
    Measurements,
    PreflightCheck,
)
from benchmark.planning.slice.slice_devices import available_memory_bytes
from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.file_names import checkpoints_folder, summary_path
from benchmark.training.checkpoints.save_policy import checkpoint_bytes
from benchmark.training.inputs import input_paths, require_inputs
from benchmark.training.machine.gpus import gpu_facts
from benchmark.training.machine.process_setup import (
    address_of_this_machine,
    files_needed,
    gloo_environment,
    raise_file_limit,
)
from benchmark.training.machine.run_environment import run_environment
from foundation.dependencies import missing
from foundation.errors import InputError
from foundation.git import REPOSITORY
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import manifest_path
from foundation.outputs.publish import write_text

GIB = 2**30
LOG_BYTES = 1 * GIB
"""Free bytes required for events and logs; a run of 175B writes a few MB."""
SHARED_MEMORY = 1 * GIB
"""Bytes required of /dev/shm, through which NCCL sends between processes of a machine; containers often have 64 MB."""


def packages(_: CheckingProcess) -> CheckResult:
    problems = missing(None)
    if problems:
        return CheckResult("FAILED", "; ".join(problems), "install requirements.lock")
    return CheckResult("ok", f"Python {platform.python_version()} and all of pyproject.toml")


def versions(process: CheckingProcess) -> dict[str, Any]:
    versions_here = run_environment(process.kind)
    if process.kind == "cuda":
        versions_here["driver"] = gpu_facts().get("driver", "unknown")
    return versions_here


def same_versions(_: CheckingProcess, measurements: Measurements) -> CheckResult:
    """Check that all machines have the same software, and report its versions."""
    if difference := _difference(measurements):
        return CheckResult("FAILED", difference, "start the same image everywhere")
    first = measurements[0][1]
    keys = [key for key in ("torch", "cuda", "nccl", "driver", "kernel", "commit") if key in first]
    return CheckResult("ok", ", ".join(f"{key} {first[key]}" for key in keys))


def _difference(measurements: Measurements) -> str:
    """Return the differences between the first place and another; empty without any."""
    first_name, first = measurements[0]
    for name, values in measurements:
        differing = [
            f"{key} {first.get(key)} but {values.get(key)}"
            for key in sorted({**first, **values})
            if first.get(key) != values.get(key)
        ]
        if differing:
            return f"{first_name} and {name} differ: {', '.join(differing)}"
    return ""


def variables(process: CheckingProcess) -> CheckResult:
    """Check the variables that a run sets for NCCL, CUDA and PyTorch: a variable that already has another value keeps
    it."""
    expected = runtime_environment(process.run.system, deterministic=process.run.deterministic)
    differences = [
        f"{name}={os.environ[name]}, not {value}"
        for name, value in expected.items()
        if os.environ.get(name, value) != value
    ]
    if differences:
        return CheckResult(
            "warning", ", ".join(differences), "unset them (benchmark/config/runtime_variables.py says why)"
        )
    return CheckResult("ok", ", ".join(f"{name}={value}" for name, value in expected.items()))


def host_name(process: CheckingProcess) -> CheckResult:
    """Check that the other machines can reach this one at the address where gloo will listen."""
    if process.run.system.nodes == 1:
        return CheckResult("skipped", "one machine")
    address = address_of_this_machine()
    if address is not None and not ip_address(address).is_loopback:
        return CheckResult("ok", f"{socket.gethostname()} is {address}")
    text = f"{socket.gethostname()} is {address or 'no address of this machine'}, which no other machine reaches"
    chosen = gloo_environment(process.run.system.nodes, process.environment.address.rpartition(":")[0])
    if not chosen:
        return CheckResult("FAILED", text, "set GLOO_SOCKET_IFNAME to the interface that the nodes share")
    return CheckResult("ok", f"{text}; gloo takes the interface {chosen['GLOO_SOCKET_IFNAME']}")


def limits(process: CheckingProcess) -> CheckResult:
    """Check how many files a process may open, after raising its limit as a run does, and how much memory it may
    lock."""
    raise_file_limit()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    axes = [process.environment.world_size]
    if process.config is not None:
        system = process.config.system
        shard = system.data_parallel // system.replicas
        axes = [system.pipeline_parallel, system.replicas, shard, system.tensor_parallel]
    required = files_needed(axes, gpus=process.kind == "cuda")
    if files != resource.RLIM_INFINITY and files < required:
        text = f"{files} open files allowed, rank 0 needs up to {required}"
        return CheckResult("FAILED", text, "raise the hard limit (ulimit -Hn; LimitNOFILE of slurmd)")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if locked != resource.RLIM_INFINITY and any(Path("/sys/class/infiniband").glob("*")):
        return CheckResult(
            "FAILED", f"{locked} bytes of memory can be locked; InfiniBand needs more", "ulimit -l unlimited"
        )
    if process.kind == "cuda":
        shared = shutil.disk_usage("/dev/shm").free
        if shared < SHARED_MEMORY:
            return CheckResult("FAILED", f"{shared / GIB:.2f} GiB free in /dev/shm", "--shm-size=8g or --ipc=host")
    allowed = "unlimited" if files == resource.RLIM_INFINITY else str(files)
    return CheckResult("ok", f"open files {allowed}, up to {required} needed")


def host_memory(process: CheckingProcess) -> CheckResult:
    """Check the host's memory for the copy that is written while training continues. Machines hold equal shares, and
    each replica holds a copy of its own."""
    if not process.run.checkpoints.saves:
        return CheckResult("skipped", "no checkpoints to be saved")
    system = process.run.system
    required = checkpoint_bytes(process.run.benchmark.model) * system.replicas / system.nodes
    available = available_memory_bytes()
    text = f"{available / GIB:,.1f} GiB available, {required / GIB:,.2f} GiB needed for a checkpoint's copy"
    if available < required:
        return CheckResult("FAILED", text, "end the other programs here, or use more --nodes")
    return CheckResult("ok", text)


def disk_space(process: CheckingProcess) -> CheckResult:
    config = process.run
    checkpoints = checkpoints_folder(config.run_dir)
    present_bytes = (
        sum(file.stat().st_size for file in checkpoints.rglob("*") if file.is_file()) if checkpoints.is_dir() else 0
    )
    count = config.checkpoints.keep_checkpoints + 1 if config.checkpoints.saves else 0
    required = max(0, count * checkpoint_bytes(config.benchmark.model) - present_bytes) + LOG_BYTES
    folder = existing(config.run_dir)
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:,.1f} GB free at {folder}, {required / 1e9:,.1f} GB needed for logs and {count} checkpoints"
    if free < required:
        return CheckResult("FAILED", text, "another --run-dir, or fewer --keep-checkpoints")
    return CheckResult("ok", text)


def run_folder(process: CheckingProcess) -> CheckResult:
    """Check that a run can begin or continue in ``run_dir``: write, sync and rename files there."""
    folder = process.run.run_dir
    if summary_path(folder).exists():
        return CheckResult("FAILED", f"{folder} holds a finished run", "choose another --run-dir")
    with tempfile.TemporaryDirectory(prefix=".preflight-", dir=existing(folder)) as scratch:
        write_text(Path(scratch, "probe"), "written, synced, renamed")
    continues = newest_checkpoint(folder)
    return CheckResult("ok", f"{folder}: writable" + (f", continues after {continues} steps" if continues else ""))


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing folder above it."""
    folder = folder.absolute()
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def inputs(process: CheckingProcess) -> CheckResult:
    """Check the inputs as ``train`` does."""
    config = process.run
    if not input_paths(config.data):
        return CheckResult("skipped", "neither data nor checkpoint was named")
    continues = newest_checkpoint(config.run_dir) is not None
    try:
        require_inputs(config.data, config.benchmark, begins=not continues)
    except InputError as error:
        return CheckResult("FAILED", str(error))  # it names the remedy
    also = "; the initial checkpoint is not needed, the run continues" if continues else ""
    return CheckResult("ok", f"the inputs exist and match their manifests{also}")


def manifests(process: CheckingProcess) -> dict[str, str]:
    """Return the MD5 of each input's manifest; "none" for an input without a manifest."""
    paths = {path: manifest_path(path) for path in input_paths(process.run.data)}
    return {str(path): md5_file(manifest) if manifest.is_file() else "none" for path, manifest in paths.items()}


def same_manifests(_: CheckingProcess, measurements: Measurements) -> CheckResult:
    """Check by the manifests that all machines have the same inputs."""
    if difference := _difference(measurements):
        return CheckResult("FAILED", difference, "copy the same files everywhere")
    return CheckResult("ok", f"{len(measurements[0][1])} manifests, the same on {len(measurements)} machines")


def clock(_: CheckingProcess) -> CheckResult:
    """Check the clock against the code's own age and against systemd."""
    wall, newest = time.time(), max(path.stat().st_mtime for path in REPOSITORY.glob("*"))
    if wall < newest - 60:
        return CheckResult(
            "FAILED", f"it is {time.ctime(wall)}, but files here are newer", "set the clock (chrony, ntpd)"
        )
    if ask("timedatectl", "show", "--property=NTPSynchronized", "--value").strip() == "no":
        return CheckResult("warning", "the clock is not synchronised", "start chrony or ntpd")
    return CheckResult("ok", f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(wall))}")


MACHINE_CHECKS = (
    PreflightCheck("packages", "an import error after hours in the queue", "node", packages),
    PreflightCheck("versions", "nodes with different images or drivers", "node", versions, same_versions),
    PreflightCheck("variables", "messages that wait behind products", "process", variables, needs=RUN | GPU),
    PreflightCheck("host name", "gloo waiting where nobody comes", "node", host_name, needs=RUN),
    PreflightCheck("limits", "NCCL or data loading failing at the start", "node", limits),
    PreflightCheck("clock", "logs that no checker accepts", "node", clock),
    PreflightCheck("host memory", "being killed at the first checkpoint", "node", host_memory, needs=RUN),
    PreflightCheck("disk space", "a disk that is full before the end", "node", disk_space, needs=RUN),
    PreflightCheck("run folder", "a run that cannot write or begin there", "node", run_folder, needs=RUN),
    PreflightCheck("inputs", "data or a checkpoint that train refuses", "job", inputs, needs=RUN),
    PreflightCheck("same inputs", "nodes with different copies", "node", manifests, same_manifests, needs=RUN | WORLD),
)
