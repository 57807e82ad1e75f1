"""What devices this machine has, asked in a process of its own: a GPU's memory stays free for those that measure."""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmark.config.accelerators import accelerator_named
from benchmark.launch.forked_ranks import fork_server
from stage.errors import InputError


@dataclass(frozen=True)
class DeviceFacts:
    """All devices of a machine, which are taken to be alike."""

    name: str
    """As the driver names it; "cpu"."""
    count: int
    """Devices; one CPU stands for as many processes as are wanted."""
    memory_bytes: int
    """Of one that is free now, of all CPU processes together where it is a CPU."""

    @property
    def accelerator(self) -> str:
        """Name in the table of accelerators; empty where it is not there."""
        return accelerator_named(self.name) or ""


def device_facts(device: str, on_cpu: str = "--device cpu") -> DeviceFacts:
    """``on_cpu``: the command's options for a machine without a GPU. Raises InputError where PyTorch sees no GPU."""
    if device == "cpu":
        return DeviceFacts("cpu", os.cpu_count() or 1, available_memory_bytes())
    with ProcessPoolExecutor(1, mp_context=fork_server()) as pool:
        found = pool.submit(_gpu_facts).result()
    if isinstance(found, str):
        raise InputError(f"device cuda: {found}, or measure something small on this machine's CPU: {on_cpu}")
    return found


def _gpu_facts() -> DeviceFacts | str:
    """Return the facts, or why there are none."""
    if torch.version.cuda is None:
        return f"PyTorch was built without CUDA (version {torch.__version__}); install its CUDA build"
    if not torch.cuda.is_available():
        return f"PyTorch sees no CUDA device (version {torch.__version__}); mend the driver"
    free, _ = torch.cuda.mem_get_info(0)
    return DeviceFacts(torch.cuda.get_device_name(0), torch.cuda.device_count(), free)


def available_memory_bytes() -> int:
    """Return what Linux says it can still give to processes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024
