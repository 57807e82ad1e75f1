"""The accelerators of a machine, as fields of the system description: by nvidia-smi, else by PyTorch."""

import re
from collections import Counter

from benchmark.machine.hardware import ask

QUERY = "name,memory.total,clocks.max.sm,driver_version,pcie.link.gen.max,pcie.link.width.max"
MEMORY_KINDS = {"H100": "HBM3", "H200": "HBM3e", "B200": "HBM3e", "GB200": "HBM3e"}
"""nvidia-smi does not tell it; the PCIe models differ."""
NONE = {
    "accelerators_per_node": "0",
    "accelerator_model_name": "none",
    "accelerator_host_interconnect": "",
    "accelerator_frequency": "",
    "accelerator_on-chip_memories": "",
    "accelerator_memory_configuration": "",
    "accelerator_memory_capacity": "",
    "accelerator_interconnect": "",
    "accelerator_interconnect_topology": "",
}


def accelerators() -> tuple[dict[str, str], dict[str, str]]:
    """Fields of the accelerators, and driver versions for ``other_software_stack``."""
    fields, stack = by_nvidia_smi(
        ask("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"),
        ask("nvidia-smi", "nvlink", "--status", "--id=0"),
        ask("nvidia-smi", "topo", "--matrix"),
    )
    return {**_by_torch(), **fields}, stack


def by_nvidia_smi(gpus_csv: str, nvlink: str, topology: str) -> tuple[dict[str, str], dict[str, str]]:
    """Fields of three answers of nvidia-smi: all GPUs, the links of GPU 0, the matrix of connections.

    GPUs that differ are listed with their numbers; what is said of one is said of the first.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in gpus_csv.splitlines()]
    rows = [row for row in rows if len(row) == len(QUERY.split(","))]
    if not rows:
        return {}, {}
    name, memory_mib, clock, driver, generation, width = rows[0]
    models = Counter(row[0] for row in rows)
    found = {
        "accelerators_per_node": str(len(rows)),
        "accelerator_model_name": name if len(models) == 1 else ", ".join(f"{n}x {m}" for m, n in models.items()),
    }
    if memory_mib.isdigit():
        found["accelerator_memory_capacity"] = f"{memory_mib} MiB"
    if clock.isdigit():
        found["accelerator_frequency"] = f"{clock} MHz at most"
    if generation.isdigit() and width.isdigit():
        found["accelerator_host_interconnect"] = f"PCIe Gen{generation} x{width}"
    kind = next((MEMORY_KINDS[word] for word in re.split(r"[\s-]+", name) if word in MEMORY_KINDS), None)
    if kind is not None and "PCIe" not in name and "NVL" not in name:
        found["accelerator_memory_configuration"] = kind
    links = [float(speed) for speed in re.findall(r"Link \d+: ([\d.]+) GB/s", nvlink)]
    if links:
        found["accelerator_interconnect"] = f"{len(links)} NVLinks, {sum(links):.0f} GB/s in each direction"
    connections = _connections(topology)
    if len(rows) == 1:
        found.setdefault("accelerator_interconnect", "")
        found["accelerator_interconnect_topology"] = ""
    elif connections:
        pairs = ", ".join(f"{count} pairs {kind}" for kind, count in connections.items())
        found["accelerator_interconnect_topology"] = f"{pairs} (nvidia-smi topo)"
    return found, {"nvidia_driver": driver}


def _connections(topology: str) -> Counter[str]:
    """How the GPUs are connected, pair by pair, from the upper triangle of ``nvidia-smi topo --matrix``."""
    kinds: Counter[str] = Counter()
    for line in re.sub(r"\x1b\[\d*m", "", topology).splitlines():
        cells = line.split()
        if cells and re.fullmatch(r"GPU\d+", cells[0]) and "X" in cells:
            diagonal = cells.index("X")
            kinds.update(cells[1:diagonal])
    return kinds


def _by_torch() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        return {} if torch.accelerator.is_available() else dict(NONE)
    first = torch.cuda.get_device_properties(0)
    return {
        "accelerators_per_node": str(torch.cuda.device_count()),
        "accelerator_model_name": str(first.name),
        "accelerator_memory_capacity": f"{first.total_memory >> 20} MiB",
        "accelerator_on-chip_memories": f"{first.L2_cache_size >> 20} MiB L2",
    }
