"""Check that a Python can run a command about a run. Any Python from 3.6 on can run this file.

python benchmark/planning/preflight/interpreter_check.py train BENCHMARK [--system NAME] [overrides]

The script prints the system's "nodes N" and "device cuda" or "device cpu", with exit status 0. Otherwise it prints one
line "error: ..." with exit status 2: for the Python, for unknown names, and for a checkpoint where the benchmark has
none.
"""

import platform
import sys
from pathlib import Path

OLDEST = (3, 11)
"""Oldest supported version, as in pyproject.toml, which only newer versions can read."""


def complaint(command: str, *options: str) -> str:
    """Return the reason why this Python cannot run the command. If it can, print the system's facts and return an empty
    text."""
    python = f"{sys.executable or 'python3'} {platform.python_version()}"
    if sys.version_info < OLDEST:
        return f"{python}: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed"
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from foundation.dependencies import missing

    problems = missing(None)
    if problems:
        return f"{python}: {'; '.join(problems)}"
    try:
        import torch

        from benchmark.config.run_options import named_run, require_start
        from foundation.errors import InputError
    except Exception as error:  # a broken installation can fail in any way
        return f"{python}: import fails: {type(error).__name__}: {' '.join(str(error).split())}"
    try:
        benchmark, chosen, overrides = named_run(command, options)
        if command == "train":
            require_start(benchmark, overrides)
    except InputError as error:
        return str(error)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        return f"{python}: PyTorch {torch.__version__} sees no CUDA device, and system {chosen.name} needs them"
    print(f"nodes {chosen.nodes}\ndevice {chosen.device}")
    return ""


if __name__ == "__main__":
    text = complaint(*sys.argv[1:])
    if text:
        print(f"error: {text}")
        sys.exit(2)
