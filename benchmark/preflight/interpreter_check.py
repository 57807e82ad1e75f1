"""Whether a Python can run the benchmark. Run as a file, by whatever Python there is: nothing here is newer than 3.6.

python benchmark/preflight/interpreter_check.py BENCHMARK SYSTEM    SYSTEM "-": the benchmark's own

Prints "nodes N", the number of nodes of the system, exit status 0; or one line "error: ...", exit status 2.
"""

import platform
import sys
from pathlib import Path

OLDEST = (3, 11)
"""As pyproject.toml has it, which Python can read from there on."""


def complaint(benchmark: str, system: str) -> str:
    """Why this Python cannot run the benchmark on the system. Empty: it can; the number of nodes is printed."""
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
        chosen = system_called(DEFAULT_SYSTEM.get(benchmark, "") if system == "-" else system)
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
