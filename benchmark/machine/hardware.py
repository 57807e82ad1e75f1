"""What a Linux machine says of itself, as fields of the system description; what it does not say is left out.

Everything is read: programs are asked with fixed arguments, and files below /proc and /sys are opened.
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

from stage.git import commit_of

MELLANOX = {"MT4119": "ConnectX-5", "MT4123": "ConnectX-6", "MT4129": "ConnectX-7", "MT4131": "ConnectX-8"}
PATIENCE_S = 30


def ask(*command: str) -> str:
    """The standard output of a program; empty where it is missing, fails, or does not answer."""
    english = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, env=english, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def processors(lscpu_json: str) -> dict[str, str]:
    """Fields of ``lscpu --json``. Core and thread counts are those of one processor."""
    if not lscpu_json:
        return {}
    said = _flat(json.loads(lscpu_json)["lscpu"])
    found: dict[str, str] = {}
    sockets, model = said.get("Socket(s)", ""), said.get("Model name", "")
    if sockets.isdigit():
        found["host_processors_per_node"] = sockets
        if sockets == "1":
            found["host_processor_interconnect"] = ""
    if model and model != "-":
        found["host_processor_model_name"] = model
    cores, threads = said.get("Core(s) per socket", ""), said.get("Thread(s) per core", "")
    if cores.isdigit() and threads.isdigit():
        found["host_processor_core_count"] = cores
        found["host_processor_vcpu_count"] = str(int(cores) * int(threads))
    if "CPU max MHz" in said:
        found["host_processor_frequency"] = f"{float(said['CPU max MHz'].replace(',', '.')) / 1000:.2f} GHz at most"
    caches = [f"{name.removesuffix(' cache')} {size}" for name, size in said.items() if name.endswith(" cache")]
    if caches:
        found["host_processor_caches"] = ", ".join(caches)
    return found


def _flat(entries: Sequence[dict[str, Any]]) -> dict[str, str]:
    """lscpu nests its lines by section; all of them by name, the last one winning."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.get("data"):
            found[str(entry["field"]).rstrip(":")] = str(entry["data"])
        found.update(_flat(entry.get("children", ())))
    return found


def memory(meminfo: str, dmidecode: str) -> dict[str, str]:
    """Of /proc/meminfo, and of ``dmidecode --type 17``, which only root may run."""
    modules: Counter[str] = Counter()
    total_gb = 0
    for device in dmidecode.split("Memory Device")[1:]:
        lines = dict(re.findall(r"^\s*([\w ]+): (.+)$", device, flags=re.MULTILINE))
        size = re.fullmatch(r"(\d+) (GB|MB)", lines.get("Size", ""))
        if size:
            gigabytes = int(size[1]) if size[2] == "GB" else int(size[1]) // 1024
            total_gb += gigabytes
            speed = re.match(r"\d+", lines.get("Speed", ""))
            modules[f"{gigabytes} GB {lines.get('Type', '')}{f'-{speed[0]}' if speed else ''}".strip()] += 1
    if total_gb:
        configuration = " + ".join(f"{count}x {module}" for module, count in modules.items())
        return {"host_memory_capacity": f"{total_gb} GB", "host_memory_configuration": configuration}
    usable = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, flags=re.MULTILINE)
    return {"host_memory_capacity": f"{int(usable[1]) / 2**20:.1f} GiB usable"} if usable else {}


def storage(lsblk_json: str) -> dict[str, str]:
    """Of ``lsblk --json --bytes --nodeps``: whole disks, loop and RAM devices left out."""
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
    """Bytes as disks are sold: 3840 GB is 3.84 TB."""
    return f"{size / 1e12:.3g} TB" if size >= 1e12 else f"{size / 1e9:.3g} GB"


def network(sys_class: Path = Path("/sys/class")) -> dict[str, str]:
    """InfiniBand and Ethernet adapters with a device behind them, with the speed they say they run at."""
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
        shown = f"{int(speed) / 1000:g} Gb/s" if speed.isdigit() and int(speed) > 0 else "of unknown speed"
        adapters[f"Ethernet ({driver}) {shown}"] += 1
    if not adapters:
        return {}
    return {"host_networking": ", ".join(f"{count}x {adapter}" for adapter, count in adapters.items())}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # an interface that is down has no speed
        return ""


def software() -> tuple[dict[str, Any], dict[str, str]]:
    """Fields of the software, and the versions in ``other_software_stack``."""
    import torch

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
    found: dict[str, Any] = {"framework": f"PyTorch {torch.__version__}"}
    with contextlib.suppress(OSError, KeyError):
        found["operating_system"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    commit = commit_of()
    found["sw_notes"] = f"commit {commit} of the benchmark's code" if commit else ""
    return found, stack
