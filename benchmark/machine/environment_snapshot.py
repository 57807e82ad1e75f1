"""Record a job's environment, so that differences between runs can be explained later.

python -m benchmark.machine.environment_snapshot FILE

The file is JSON with versions, packages, variables, limits, devices and their links. Secrets are left out of the
variables: they are recognised by the variable's name, by the look of its value, and within URLs.
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

from benchmark.machine.gpus import gpu_facts
from benchmark.machine.hardware import ask
from benchmark.machine.run_environment import run_environment
from foundation.outputs.publish import write_text

LEFT_OUT = "(left out)"
SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS(W|PHRASE|$)|PASSWD|(?<!OLD)(?<!^)PWD|CREDENTIAL|AUTH|COOKIE|PRIVATE|SIGNATURE|LICENSE"
    r"|SESSION|BEARER|WEBHOOK|DSN$|CONNECTION_STRING",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(
    r"\b(hf|ghp|gho|ghs|ghu|glpat|xox[abprs]|sk|pk|rk|nvapi)[-_][\w-]{10,}|\bgithub_pat_\w{10,}|\b(AKIA|ASIA)[A-Z0-9]{12,}"
    r"|\beyJ[\w-]{10,}\.[\w-]+|-----BEGIN|\b(Bearer|Basic) [\w+/=.-]{8,}"
)
"""Pattern of the keys that services hand out."""
IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
ASSIGNED = re.compile(
    r"(?i)\b([\w.-]*(?:password|passwd|pwd|token|secret|api_?key|sig|signature|credential)s?)=[^&;,\s]+"
)
"""Pattern of a secret within a URL, or within a list of settings."""
LONGEST_VALUE = 20_000


def environment_snapshot(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the environment of this process, in its container. Facts that the machine does not tell are left out."""
    found = {
        "time_ms": int(time.time() * 1000),
        "host": socket.gethostname(),
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "versions": run_environment("cuda"),
        "packages": installed_packages(),
        "variables": without_secrets(variables),
        "limits": limits(),
        "cores": sorted(os.sched_getaffinity(0)),
        "processors": ask("lscpu"),
        "memory": _text(Path("/proc/meminfo")),
        "gpus": gpu_facts(),
        "links": ask("nvidia-smi", "topo", "-m"),
        "infiniband": ask("ibstat"),
    }
    return {name: value for name, value in found.items() if value not in ("", {})}


def installed_packages() -> dict[str, str]:
    """Return the versions of the packages by name, as "pip list" shows them."""
    found = {str(one.metadata["Name"]): one.version for one in importlib.metadata.distributions() if one.metadata}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by name; values that are or may be secret are left out, whole or in part."""
    return {name: _without_secret(name, variables[name]) for name in sorted(variables) if "BASH_FUNC_" not in name}


def _without_secret(name: str, value: str) -> str:
    if SECRET_NAME.search(name) or SECRET_VALUE.search(value):
        return LEFT_OUT
    value = IN_URL.sub(f"{LEFT_OUT}@", value)
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
