"""Run ``describe-system``: write the MLPerf description of this machine, with a mark at each field that a person must
fill in."""

import json
from pathlib import Path
from typing import Any

from benchmark.config.accelerators import accelerator_named
from benchmark.config.description_fields import FIELDS, marked_fields
from benchmark.config.system_config import SUFFIX, System, system_text
from benchmark.planning.machine import hardware
from foundation.outputs.publish import write_text
from foundation.plain_text import folded

LSBLK = ("lsblk", "--json", "--bytes", "--nodeps", "--output", "NAME,TYPE,SIZE,ROTA,TRAN")


def describe_system(output: Path | None = None) -> str:
    """Return the description of this machine as JSON. With ``output``, write it there and return the fields that are
    left for a person; a file that ends in .toml gets the hardware part of a system instead, for ``--system``.

    The command refuses an ``output`` that exists.
    """
    if output is not None and output.suffix == SUFFIX:
        write_text(output, hardware_toml())
        return f"{output}: for --system; add nodes and the layout"
    description = describe_this_machine()
    text = json.dumps(description, indent=2, ensure_ascii=False)
    if output is None:
        return text
    write_text(output, text + "\n")
    marked, total = marked_fields(description), len(description)
    headline = f"{output}: {total - len(marked)} of {total} fields read, {len(marked)} left for you:"
    return "\n".join([headline, *(folded(f"  {name:33} {description[name]}") for name in marked)])


def hardware_toml() -> str:
    """Return one machine like this as a system: its accelerators, and nothing of the layout."""
    gpu, _ = hardware.accelerators()
    name, count = gpu.get("accelerator_model_name", ""), gpu.get("accelerators_per_node", "")
    accelerator = accelerator_named(name)
    devices = max(1, int(count)) if count.isdecimal() else 1
    return system_text(System("", "cuda" if accelerator else "cpu", 1, devices, 1, accelerator=accelerator or ""))


def describe_this_machine() -> dict[str, Any]:
    """Return every field of the description in the usual order, read from the machine or marked."""
    gpu, gpu_stack = hardware.accelerators()
    programs, stack = hardware.software()
    facts: dict[str, Any] = {
        "hw_notes": "",
        **hardware.processors(hardware.ask("lscpu", "--json")),
        **hardware.memory(_read(Path("/proc/meminfo"))),
        **hardware.storage(hardware.ask(*LSBLK)),
        **hardware.network(),
        **gpu,
        **programs,
        "other_software_stack": {**stack, **gpu_stack},
    }
    return {field.name: facts.get(field.name, field.marked) for field in FIELDS}


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
