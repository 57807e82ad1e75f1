"""Describe the code, the machine and the kernels of a run, for its events and evidence."""

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

from foundation.git import commit_of

PACKAGES = ("torch", "numpy", "sentencepiece", "tensorstore", "safetensors", "mlperf-logging")
CPUINFO = Path("/proc/cpuinfo")
IMPORTED_S = time.monotonic()


def run_environment(device: str) -> dict[str, Any]:
    """Return commit, versions, and the name of the first device of the kind that the run uses; unknown facts are left
    out."""
    facts: dict[str, Any] = {
        "commit": commit_of(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in PACKAGES},
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
    }
    if device == "cuda" and torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name(0)
        facts["cuda"] = torch.version.cuda
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return {name: value for name, value in facts.items() if value is not None}


def float32_products(device: str) -> str:
    """Return the format in which PyTorch multiplies FP32 numbers on a device of that kind: fp32, or tf32 on a GPU where
    the environment asks for it, as NVIDIA's containers do."""
    return "tf32" if device == "cuda" and torch.get_float32_matmul_precision() != "highest" else "fp32"


def kernel_facts(device: torch.device, *, deterministic: bool) -> dict[str, Any]:
    """Return the facts that choose the kernels of a process, and so the bits of its results.

    If all facts and the layout of the model are the same, the same bits are expected on a CPU; on GPUs this holds only
    with deterministic kernels.
    """
    facts: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "torch": str(torch.__version__),
        "deterministic": deterministic or device.type == "cpu",
    }
    if device.type == "cuda":
        return {**facts, "cuda": torch.version.cuda}
    return {**facts, "instructions": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}


def _cpu_name() -> str:
    """Return Linux's name for the processor; else its architecture."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def use_deterministic_kernels() -> None:
    """Make this process use only kernels that give the same bits each time (``--deterministic``); an operator without
    such a kernel then raises RuntimeError with its name.

    All kernels on a CPU, and those of model/, give the same bits anyway. On GPUs some of PyTorch's, cuBLAS', cuDNN's
    and NCCL's add up in an order that depends on timing; benchmark/config/runtime_variables.py fixes NCCL's and
    cuBLAS', and model/ knows which kernel of the attention is deterministic.
    """
    torch.use_deterministic_algorithms(True)
    # Else every tensor is filled with NaN before it is written to: a pass over all memory that changes no result.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def seconds_since_process_start() -> float:
    """Return the seconds since Linux started this process, imports included; elsewhere since this module was
    imported."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return time.monotonic() - IMPORTED_S
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
