"""Ask for this machine's devices in a separate process, so that all GPU memory stays free for the processes that
measure."""

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
    """Facts about the devices of a machine, which are assumed to be alike."""

    name: str
    """Name from the driver; "cpu" for a CPU."""
    count: int
    """Number of devices; one CPU stands for as many processes as are wanted."""
    memory_bytes: int
    """Free bytes of one device; on a CPU, of all processes together."""

    @property
    def accelerator(self) -> str:
        """Return the name in the table of accelerators; empty if it is not listed."""
        return accelerator_named(self.name) or ""


def device_facts(device: str, on_cpu: str = "--device cpu") -> DeviceFacts:
    """Return the facts; the words ``on_cpu`` name the options for a machine without a GPU. Raises InputError if PyTorch
    sees no GPU."""
    if device == "cpu":
        return DeviceFacts("cpu", os.cpu_count() or 1, available_memory_bytes())
    with ProcessPoolExecutor(1, mp_context=fork_server()) as pool:
        found = pool.submit(_gpu_facts).result()
    if isinstance(found, str):
        raise InputError(f"device cuda: {found}, or measure something small on this machine's CPU: {on_cpu}")
    return found


def _gpu_facts() -> DeviceFacts | str:
    """Return the facts, or the reason why there are none."""
    if torch.version.cuda is None:
        return f"PyTorch was built without CUDA (version {torch.__version__}); install its CUDA build"
    if not torch.cuda.is_available():
        return f"PyTorch sees no CUDA device (version {torch.__version__}); mend the driver"
    free, _ = torch.cuda.mem_get_info(0)
    return DeviceFacts(torch.cuda.get_device_name(0), torch.cuda.device_count(), free)


def available_memory_bytes() -> int:
    """Return the memory in bytes that Linux says it can still give to processes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024
