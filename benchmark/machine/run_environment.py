"""What code runs, and on what: stamped into a run's events."""

import importlib.metadata
import platform
from typing import Any

import torch

from stage.git import commit_of

PACKAGES = ("torch", "numpy", "sentencepiece", "tensorstore", "safetensors", "mlperf-logging")


def run_environment(device: str) -> dict[str, Any]:
    """Commit, versions, and the name of the first device of the kind the run uses. What is not known is left out."""
    found: dict[str, Any] = {
        "commit": commit_of(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in PACKAGES},
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
    }
    if device == "cuda" and torch.cuda.is_available():
        found["device"] = torch.cuda.get_device_name(0)
        found["cuda"] = torch.version.cuda
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return {name: value for name, value in found.items() if value is not None}
