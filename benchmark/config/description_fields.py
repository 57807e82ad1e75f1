"""The fields of a system description, ``systems/NAME.json``, and the mark of those that a person has to fill in.

Names and conditions: docs/facts/mlperf_review.md 4.5. Every field must be present; ``optional`` ones may be empty.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

STATUSES = ("Available on-premise", "Available cloud", "Research, Development, or Internal (RDI)", "Preview")
MARK = "FILL IN: "
"""Beginning of a field's value that ``describe-system`` could not read; package and review refuse it."""


@dataclass(frozen=True)
class Field:
    """One field of the description."""

    name: str
    meaning: str
    """Expected content, with an example."""
    optional: bool = False
    """True if accepted submissions leave it empty."""

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
"""Pattern of a mark, even if a person has changed it a little or copied it into a longer text."""


def texts_in(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text in a description with the name of its field, such as other_software_stack.cuda; list entries are
    numbered."""
    waiting: list[tuple[str, Any]] = list(content.items())
    while waiting:
        name, value = waiting.pop(0)
        if isinstance(value, dict):
            waiting += [(f"{name}.{inner}", entry) for inner, entry in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{name}.{number}", entry) for number, entry in enumerate(value)]
        else:
            yield name, value if isinstance(value, str) else ""


def marked_fields(description: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields that still hold a mark, at any depth."""
    marked = (name for name, text in texts_in(description) if MARKED.search(name) or MARKED.search(text))
    return list(dict.fromkeys(marked))
