"""Check that a Python can run the benchmark. Any Python from 3.6 on can run this file.

python benchmark/preflight/interpreter_check.py BENCHMARK SYSTEM    SYSTEM "-" means the benchmark's own

The script prints "nodes N", the number of nodes of the system, with exit status 0; or one line "error: ..." with exit
status 2.
"""

import platform
import sys
from pathlib import Path

OLDEST = (3, 11)
"""Oldest supported version, as in pyproject.toml, which only newer versions can read."""


def complaint(benchmark: str, system: str) -> str:
    """Return the reason why this Python cannot run the benchmark on the system. If it can, print the number of nodes
    and return an empty text."""
    found = f"{sys.executable or 'python3'} {platform.python_version()}"
    if sys.version_info < OLDEST:
        return f"{found}: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed"
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from stage.dependencies import missing

    lacking = missing(None)
    if lacking:
        return f"{found}: {'; '.join(lacking)}"
    try:
        import torch

        from benchmark.config.systems import DEFAULT_SYSTEM, system_called
        from stage.errors import InputError
    except Exception as error:  # a broken installation can fail in any way
        return f"{found}: import fails: {type(error).__name__}: {' '.join(str(error).split())}"
    try:
        chosen = system_called(DEFAULT_SYSTEM.get(benchmark, "") if system == "-" else system, benchmark)
    except InputError:
        return ""  # the options' own complaint is better
    if chosen.device == "cuda" and not torch.cuda.is_available():
        return f"{found}: PyTorch {torch.__version__} sees no CUDA device, and system {chosen.name} needs them"
    print(f"nodes {chosen.nodes}")
    return ""


if __name__ == "__main__":
    text = complaint(sys.argv[1], sys.argv[2])
    if text:
        print(f"error: {text}")
        sys.exit(2)
