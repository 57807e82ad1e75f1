"""The MLPerf description of a system, ``systems/NAME.json``: its fields, and the mark of what is not filled in yet.

Names and conditions: docs/facts/mlperf_review.md 4.5. Every field must be there; ``optional`` ones may be empty.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmark.review.rules.system_rules import STATUSES

MARK = "FILL IN: "
"""Begins the value of a field that ``describe-system`` could not read; package and review refuse it."""


@dataclass(frozen=True)
class Field:
    """One field of the description."""

    name: str
    meaning: str
    """What belongs there, with an example."""
    optional: bool = False
    """Whether accepted submissions leave it empty."""

    @property
    def marked(self) -> str:
        return f"{MARK}{self.meaning}{', or leave empty' if self.optional else ''}"


FIELDS = (
    Field("submitter", "the submitting organisation, as in --org"),
    Field("division", "closed or open"),
    Field("status", f"one of {'; '.join(STATUSES)}"),
    Field("system_name", "a name for the system, such as DGX-H100-n64"),
    Field("number_of_nodes", "number of machines, a whole number"),
    Field("host_processors_per_node", "processors (sockets) per machine, a whole number"),
    Field("host_processor_model_name", "model of the processor"),
    Field("host_processor_core_count", "cores of one processor"),
    Field("host_processor_vcpu_count", "hardware threads of one processor", True),
    Field("host_processor_frequency", "frequency of the processor, such as 2.0 GHz", True),
    Field("host_processor_caches", "sizes of the processor's caches", True),
    Field("host_processor_interconnect", "what connects the processors, such as UPI", True),
    Field("host_memory_capacity", "memory per machine, such as 2.0 TB"),
    Field("host_storage_type", "kind of storage, such as NVMe SSD"),
    Field("host_storage_capacity", "storage per machine, such as 8x 3.84 TB"),
    Field("host_networking", "network adapters and their speeds", True),
    Field("host_networking_topology", "how the machines are connected, such as fat tree", True),
    Field("host_memory_configuration", "memory modules, such as 32x 64 GB DDR5", True),
    Field("accelerators_per_node", "accelerators per machine, a whole number"),
    Field("accelerator_model_name", "model of the accelerator"),
    Field("accelerator_host_interconnect", "link between host and accelerator, such as PCIe Gen5 x16", True),
    Field("accelerator_frequency", "highest frequency of the accelerator", True),
    Field("accelerator_on-chip_memories", "on-chip memories of the accelerator, such as 50 MiB L2", True),
    Field("accelerator_memory_configuration", "kind of the accelerator's memory, such as HBM3", True),
    Field("accelerator_memory_capacity", "memory of one accelerator, such as 80 GB", True),
    Field("accelerator_interconnect", "link between accelerators, such as NVLink", True),
    Field("accelerator_interconnect_topology", "how the accelerators of a machine are connected", True),
    Field("cooling", "air or liquid", True),
    Field("hw_notes", "notes on the hardware", True),
    Field("framework", "training framework and its version"),
    Field("other_software_stack", "versions of CUDA, NCCL, drivers and other software", True),
    Field("operating_system", "operating system and its version"),
    Field("sw_notes", "notes on the software", True),
)


MARKED = re.compile(r"(?i)\bfill[ _-]?in\b *:|^ *fill[ _-]?in *$")
"""A mark, also one that a person has changed a little or copied into a longer text."""


def marked_fields(description: Mapping[str, Any]) -> list[str]:
    """Names of the fields that still hold a mark, at any depth: other_software_stack.cuda, lists by their number."""
    found: dict[str, None] = {}
    waiting: list[tuple[str, Any]] = [(name, value) for name, value in description.items()]
    while waiting:
        name, value = waiting.pop(0)
        if isinstance(value, dict):
            waiting += [(f"{name}.{inner}", one) for inner, one in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{name}.{place}", one) for place, one in enumerate(value)]
        if MARKED.search(name) or (isinstance(value, str) and MARKED.search(value)):
            found[name] = None
    return list(found)
