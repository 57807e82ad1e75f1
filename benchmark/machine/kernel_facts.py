"""What chooses the kernels of a process, and with them the bits that they give."""

import platform
from pathlib import Path
from typing import Any

import torch

CPUINFO = Path("/proc/cpuinfo")


def kernel_facts(device: torch.device, *, deterministic: bool) -> dict[str, Any]:
    """Where all of it is the same, and the layout of the model too, the same bits are expected on a CPU; on GPUs only
    with deterministic kernels."""
    facts: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "torch": str(torch.__version__),
        "deterministic": deterministic or device.type == "cpu",
    }
    if device.type == "cuda":
        return {**facts, "cuda": torch.version.cuda}
    return {**facts, "instructions": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}


def _cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """As Linux names it; else its architecture."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
