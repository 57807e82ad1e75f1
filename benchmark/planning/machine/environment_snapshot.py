"""Record a job's environment, so that differences between runs can be explained later.

python -m benchmark.planning.machine.environment_snapshot FILE

The file is JSON with versions, packages, variables, limits, devices and their links. It records the variables of
Slurm, NCCL, CUDA, PyTorch and this project, and no others, because any variable may hold a secret. In a recorded value,
parts that look secret are left out.
"""

import importlib.metadata
import json
import os
import platform
import re
import resource
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmark.planning.machine.hardware import ask
from benchmark.training.machine.gpus import gpu_facts
from benchmark.training.machine.run_environment import run_environment
from foundation.outputs.publish import write_text
from foundation.this_machine import usable_cores

LEFT_OUT = "(left out)"
PREFIXES = tuple("SLURM SBATCH_ SRUN_ NCCL_ CUDA_ CUBLAS_ CUDNN_ NVIDIA_ TORCH PYTORCH_ GLOO_ OMP_ MKL_ KMP_".split())
"""Beginnings of the names of Slurm's, NCCL's, CUDA's and PyTorch's variables."""
OURS = frozenset(
    """BENCHMARK CHAIN COMMAND COM_DIR CPU_BIND DRY_RUN EXIT_MARGIN_MINUTES EXTERNAL_GBS EXTERNAL_MODEL_CHECKPOINT_DIR
    EXTERNAL_TRAINING_ITERATIONS GBS LR MASTER_ADDR MASTER_PORT MIN_LR NEW_SNAPSHOT NODES PRECISION SEED SNAPSHOT_FILES
    SYSTEM USE_BF16 ATTEMPT LAUNCHED_S LAUNCH_ID LOCAL_RANK NODE_NAME RANK SUBMITTED_S WORLD_SIZE""".split()
)
"""Our variables: those of run_gpt3.sh and of ranks. Not recorded: TRAIN_OPTIONS and CHAIN_OPTIONS, which hold commands;
config.json has the options."""
SECRET_NAME = re.compile(
    r"(?<!_P)KEY|TOKEN|JWT|SECRET|PASS|PW(D|$)|CRED|AUTH|COOKIE|WEBHOOK|COMMENT|MAIL|EXPORT", re.IGNORECASE
)
"""Pattern of names that are not recorded although they begin with one of PREFIXES: SLURM_JWT is
a key, and SLURM_EXPORT_ENV holds values of other variables."""
SECRET_VALUE = re.compile(
    r"\b(hf|ghp|gho|ghs|ghu|glpat|xox[abprs]|sk|pk|rk|nvapi)[-_][\w-]{10,}|\bgithub_pat_\w{10,}"
    r"|\b(AKIA|ASIA)[A-Z0-9]{12,}|\beyJ[\w-]{10,}\.[\w-]+|-----BEGIN|\b(Bearer|Basic) [\w+/=.-]{8,}"
    r"|(^|\s)(-u|--user)[ =]?\S+:\S+"
)
"""Pattern of the keys that services hand out, and of names with passwords."""
IN_URL = re.compile(r"(?<=://)[^/@\s]+@|(?<=[?&])[^\s]+")
"""Pattern of the secret parts of an address: a name with a password, and a query."""
ASSIGNED = re.compile(r"(?i)\b([\w.-]*(?:password|passwd|pwd?|token|secret|key|sig|signature|cred\w*))=[^&;,\s]+")
"""Pattern of a secret within a list of settings."""
LONGEST_VALUE = 20_000


def environment_snapshot(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the environment of this process, in its container. Unknown facts are absent."""
    snapshot = {
        "time_ms": int(time.time() * 1000),
        "host": socket.gethostname(),
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "versions": run_environment("cuda"),
        "packages": installed_packages(),
        "variables": recorded_variables(variables),
        "limits": limits(),
        "cores": sorted(usable_cores()),
        "processors": ask("lscpu"),
        "memory": _text(Path("/proc/meminfo")),
        "gpus": gpu_facts(),
        "links": ask("nvidia-smi", "topo", "-m"),
        "infiniband": ask("ibstat"),
    }
    return {name: value for name, value in snapshot.items() if value not in ("", {})}


def installed_packages() -> dict[str, str]:
    """Return the versions of the packages by name, as "pip list" shows them."""
    versions = {
        str(package.metadata["Name"]): package.version
        for package in importlib.metadata.distributions()
        if package.metadata
    }
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the snapshot records, without secret parts."""
    return {name: _without_secret(variables[name]) for name in sorted(variables) if _is_recorded(name)}


def _is_recorded(name: str) -> bool:
    return name in OURS or (name.startswith(PREFIXES) and not SECRET_NAME.search(name))


def _without_secret(value: str) -> str:
    if SECRET_VALUE.search(value):
        return LEFT_OUT
    value = IN_URL.sub(lambda match: f"{LEFT_OUT}@" if match[0].endswith("@") else LEFT_OUT, value)
    return ASSIGNED.sub(rf"\1={LEFT_OUT}", value)[:LONGEST_VALUE]


def limits() -> dict[str, list[int]]:
    """Return the soft and the hard limit by name; -1 means no limit."""
    names = ("NOFILE", "MEMLOCK", "NPROC", "STACK", "AS", "CORE")
    return {name: list(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))) for name in names}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), json.dumps(environment_snapshot(os.environ), indent=1) + "\n")
