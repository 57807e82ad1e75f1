"""The accelerators of a machine, as fields of the system description: by NVML, else by PyTorch."""

import re

from benchmark.machine.gpus import gpu_facts

MEMORY_KINDS = {"H100": "HBM3", "H200": "HBM3e", "B200": "HBM3e", "GB200": "HBM3e"}
"""NVML does not tell it; the PCIe models differ."""
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
    """Return the fields of the accelerators, and driver versions for ``other_software_stack``.

    GPUs that differ are listed with their numbers; what is said of one is said of the first.
    """
    facts, found = gpu_facts(), _by_torch()
    if not facts:
        return found, {}
    models, count = facts["models"], sum(facts["models"].values())
    name = next(iter(models))
    found["accelerators_per_node"] = str(count)
    found["accelerator_model_name"] = name if len(models) == 1 else ", ".join(f"{n}x {m}" for m, n in models.items())
    if "memory_mib" in facts:
        found["accelerator_memory_capacity"] = f"{facts['memory_mib']:.0f} MiB"
    if "most_clock_mhz" in facts:
        found["accelerator_frequency"] = f"{facts['most_clock_mhz']:.0f} MHz at most"
    if "pcie" in facts:
        found["accelerator_host_interconnect"] = facts["pcie"]
    kind = next((MEMORY_KINDS[word] for word in re.split(r"[\s-]+", name) if word in MEMORY_KINDS), None)
    if kind is not None and "PCIe" not in name and "NVL" not in name:
        found["accelerator_memory_configuration"] = kind
    if "nvlinks" in facts:
        speed = facts["nvlinks"] * facts.get("gb_per_s_of_a_link", 0.0)
        each = f", {speed:.0f} GB/s in each direction" if speed else ""
        found["accelerator_interconnect"] = f"{facts['nvlinks']} NVLinks{each}"
    elif count == 1:
        found["accelerator_interconnect"] = ""
    pairs = ", ".join(f"{number} pairs {kind}" for kind, number in facts.get("connections_of_pairs", {}).items())
    found["accelerator_interconnect_topology"] = pairs
    return found, {"nvidia_driver": facts["driver"]}


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
