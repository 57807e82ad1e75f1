"""Read a Linux machine's hardware and software as fields of the system description; unknown fields are left out.

Nothing is changed: programs are called with fixed arguments, and files below /proc and /sys are read.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmark.training.machine.gpus import gpu_facts
from foundation.git import commit_of

MELLANOX = {"MT4119": "ConnectX-5", "MT4123": "ConnectX-6", "MT4129": "ConnectX-7", "MT4131": "ConnectX-8"}
PATIENCE_S = 30
NO_ACCELERATORS = {
    "accelerators_per_node": "0",
    "accelerator_model_name": "none",
    **{
        f"accelerator_{field}": ""
        for field in (
            *("host_interconnect", "frequency", "on-chip_memories", "memory_configuration", "memory_capacity"),
            *("interconnect", "interconnect_topology"),
        )
    },
}


def ask(*command: str) -> str:
    """Return the standard output of a program; empty if the program is missing, fails, or does not answer."""
    english = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, env=english, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def processors(lscpu_json: str) -> dict[str, str]:
    """Return the fields from ``lscpu --json``. Core and thread counts are those of one processor."""
    if not lscpu_json:
        return {}
    fields = _flat(json.loads(lscpu_json)["lscpu"])
    description: dict[str, str] = {}
    sockets, model = fields.get("Socket(s)", ""), fields.get("Model name", "")
    if sockets.isdigit():
        description["host_processors_per_node"] = sockets
        if sockets == "1":
            description["host_processor_interconnect"] = ""
    if model and model != "-":
        description["host_processor_model_name"] = model
    cores, threads = fields.get("Core(s) per socket", ""), fields.get("Thread(s) per core", "")
    if cores.isdigit() and threads.isdigit():
        description["host_processor_core_count"] = cores
        description["host_processor_vcpu_count"] = str(int(cores) * int(threads))
    if "CPU max MHz" in fields:
        description["host_processor_frequency"] = (
            f"{float(fields['CPU max MHz'].replace(',', '.')) / 1000:.2f} GHz at most"
        )
    caches = [f"{name.removesuffix(' cache')} {size}" for name, size in fields.items() if name.endswith(" cache")]
    if caches:
        description["host_processor_caches"] = ", ".join(caches)
    return description


def _flat(entries: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return all lines of lscpu by name; lscpu nests them by section, and of equal names the last one counts."""
    fields: dict[str, str] = {}
    for entry in entries:
        if entry.get("data"):
            fields[str(entry["field"]).rstrip(":")] = str(entry["data"])
        fields.update(_flat(entry.get("children", ())))
    return fields


def memory(meminfo: str) -> dict[str, str]:
    """Return the fields from /proc/meminfo; only a person knows the memory modules."""
    usable = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, flags=re.MULTILINE)
    return {"host_memory_capacity": f"{int(usable[1]) / 2**20:.1f} GiB usable"} if usable else {}


def storage(lsblk_json: str) -> dict[str, str]:
    """Return the fields from ``lsblk --json --bytes --nodeps``: whole disks, without loop and RAM devices."""
    if not lsblk_json:
        return {}
    kinds: Counter[str] = Counter()
    disks: Counter[str] = Counter()
    for disk in json.loads(lsblk_json)["blockdevices"]:
        name, size = str(disk["name"]), int(disk["size"] or 0)
        if disk["type"] != "disk" or size == 0 or name.startswith(("zram", "ram", "loop")):
            continue
        kinds[_kind_of_disk(name, disk)] += 1
        disks[f"{_decimal(size)} {_kind_of_disk(name, disk)}"] += 1
    if not disks:
        return {}
    return {
        "host_storage_type": " + ".join(kinds),
        "host_storage_capacity": " + ".join(f"{count}x {disk}" for disk, count in disks.items()),
    }


def _kind_of_disk(name: str, disk: dict[str, Any]) -> str:
    if name.startswith("nvme") or disk.get("tran") == "nvme":
        return "NVMe SSD"
    if name.startswith(("vd", "xvd")):
        return "virtual disk"
    return "HDD" if disk.get("rota") in (True, "1", 1) else "SSD"


def _decimal(size: int) -> str:
    """Return a size as disks are sold: 3840 GB is 3.84 TB."""
    return f"{size / 1e12:.3g} TB" if size >= 1e12 else f"{size / 1e9:.3g} GB"


def network(sys_class: Path = Path("/sys/class")) -> dict[str, str]:
    """Return the InfiniBand and Ethernet adapters with a device behind them, and the speed that each reports."""
    adapters: Counter[str] = Counter()
    ports_of_infiniband = set()
    for device in sorted((sys_class / "infiniband").glob("*")):
        model = _text(device / "hca_type")
        ports_of_infiniband |= {port.name for port in (device / "device" / "net").glob("*")}
        for port in sorted((device / "ports").glob("*")):
            adapters[f"{MELLANOX.get(model, model)} {_text(port / 'link_layer')} {_text(port / 'rate')}".strip()] += 1
    for device in sorted((sys_class / "net").glob("*")):
        if device.name in ports_of_infiniband or not (device / "device").exists():
            continue
        driver = (device / "device" / "driver").resolve().name
        speed = _text(device / "speed")
        speed_text = f"{int(speed) / 1000:g} Gb/s" if speed.isdigit() and int(speed) > 0 else "of unknown speed"
        adapters[f"Ethernet ({driver}) {speed_text}"] += 1
    if not adapters:
        return {}
    return {"host_networking": ", ".join(f"{count}x {adapter}" for adapter, count in adapters.items())}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # an interface that is down has no speed
        return ""


def accelerators() -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields of the accelerators, and driver versions for ``other_software_stack``.

    GPUs of different models are listed with their numbers; other fields describe the first GPU.
    """
    facts, description = gpu_facts(), _accelerators_by_torch()
    if not facts:
        return description, {}
    models, count = facts["models"], sum(facts["models"].values())
    name = next(iter(models))
    description["accelerators_per_node"] = str(count)
    description["accelerator_model_name"] = (
        name if len(models) == 1 else ", ".join(f"{n}x {m}" for m, n in models.items())
    )
    if "memory_mib" in facts:
        description["accelerator_memory_capacity"] = f"{facts['memory_mib']:.0f} MiB"
    if "most_clock_mhz" in facts:
        description["accelerator_frequency"] = f"{facts['most_clock_mhz']:.0f} MHz at most"
    if "pcie" in facts:
        description["accelerator_host_interconnect"] = facts["pcie"]
    if "nvlinks" in facts:
        speed = facts["nvlinks"] * facts.get("gb_per_s_of_a_link", 0.0)
        per_link = f", {speed:.0f} GB/s in each direction" if speed else ""
        description["accelerator_interconnect"] = f"{facts['nvlinks']} NVLinks{per_link}"
    elif count == 1:
        description["accelerator_interconnect"] = ""
        description["accelerator_interconnect_topology"] = ""
    return description, {"nvidia_driver": facts["driver"]}


def _accelerators_by_torch() -> dict[str, str]:
    if not torch.cuda.is_available():
        return {} if torch.accelerator.is_available() else dict(NO_ACCELERATORS)
    first = torch.cuda.get_device_properties(0)
    return {
        "accelerators_per_node": str(torch.cuda.device_count()),
        "accelerator_model_name": str(first.name),
        "accelerator_memory_capacity": f"{first.total_memory >> 20} MiB",
        "accelerator_on-chip_memories": f"{first.L2_cache_size >> 20} MiB L2",
    }


def software() -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of the software, and the versions in ``other_software_stack``."""
    stack = {"python_version": platform.python_version(), "kernel_version": f"Linux {platform.release()}"}
    if torch.version.cuda:
        stack["cuda_version"] = str(torch.version.cuda)
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        if cudnn:
            stack["cudnn_version"] = str(cudnn)
        if torch.distributed.is_nccl_available():
            stack["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    for package in ("numpy", "sentencepiece", "mlperf-logging"):
        stack[f"{package}_version"] = importlib.metadata.version(package)
    description: dict[str, Any] = {"framework": f"PyTorch {torch.__version__}"}
    with contextlib.suppress(OSError, KeyError):
        description["operating_system"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    commit = commit_of()
    description["sw_notes"] = f"commit {commit} of the benchmark's code" if commit else ""
    return description, stack
