"""``describe-system``: the MLPerf description of this machine, with a mark where it takes a person to know."""

import json
from pathlib import Path
from typing import Any

from benchmark.machine import hardware
from benchmark.submission.system_fields import FIELDS, marked_fields
from stage.errors import InputError
from stage.outputs.publish import write_text

LSBLK = ("lsblk", "--json", "--bytes", "--nodeps", "--output", "NAME,TYPE,SIZE,ROTA,TRAN")


def describe_system(output: Path | None = None) -> str:
    """The description of this machine as JSON; or, written to ``output``, the fields that are left for a person.

    Raises InputError where ``output`` exists.
    """
    if output is not None and output.exists():
        raise InputError(f"{output}: exists, perhaps filled in by hand; choose another --output or delete it")
    description = describe_this_machine()
    text = json.dumps(description, indent=2, ensure_ascii=False)
    if output is None:
        return text
    write_text(output, text + "\n")
    left = marked_fields(description)
    total = len(description)
    told = [f"{output}: {total - len(left)} of {total} fields read, {len(left)} left for you:"]
    return "\n".join(told + [f"  {name:33} {description[name]}" for name in left])


def describe_this_machine() -> dict[str, Any]:
    """Every field of the description, in the usual order: read, or marked."""
    gpu, gpu_stack = hardware.accelerators()
    programs, stack = hardware.software()
    found: dict[str, Any] = {
        "hw_notes": "",
        **hardware.processors(hardware.ask("lscpu", "--json")),
        **hardware.memory(_read(Path("/proc/meminfo"))),
        **hardware.storage(hardware.ask(*LSBLK)),
        **hardware.network(),
        **gpu,
        **programs,
        "other_software_stack": {**stack, **gpu_stack},
    }
    return {field.name: found.get(field.name, field.marked) for field in FIELDS}


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
