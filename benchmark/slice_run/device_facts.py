"""What devices this machine has, asked in a process of its own: the slice's own never touches a GPU."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmark.config.accelerators import accelerator_named
from benchmark.launch.forked_ranks import run_ranks
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
    """``on_cpu``: the command's options for a machine without a GPU. Raises InputError where PyTorch sees no GPU that
    works."""
    if device == "cpu":
        return DeviceFacts("cpu", os.cpu_count() or 1, available_memory_bytes())
    with tempfile.TemporaryDirectory() as folder:
        found, log = Path(folder) / "facts.json", Path(folder) / "log.txt"
        status = run_ranks(_write_facts, [found], processes=1, environment={}, log=log)
        if status == 0:
            return DeviceFacts(**json.loads(found.read_text()))
        said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    raise InputError(
        f"device cuda: {said[-1] if said else f'the process that asked for it ended with {status}; mend the driver'}, "
        f"or measure something small on this machine's CPU: {on_cpu}"
    )


def _write_facts(path: Path) -> None:
    """In a child."""
    if not torch.cuda.is_available():
        built, mend = (
            ("PyTorch was built without CUDA", "install its CUDA build")
            if torch.version.cuda is None
            else ("PyTorch sees no CUDA device", "mend the driver")
        )
        print(f"{built} (version {torch.__version__}); {mend}", flush=True)
        os._exit(1)
    free, _ = torch.cuda.mem_get_info(0)
    path.write_text(json.dumps(asdict(DeviceFacts(torch.cuda.get_device_name(0), torch.cuda.device_count(), free))))


def available_memory_bytes() -> int:
    """What Linux says it can still give to processes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
