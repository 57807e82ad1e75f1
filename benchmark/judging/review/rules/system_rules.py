"""Check system descriptions: fields, their types and values (docs/facts/mlperf_review.md 4.5, 4.6, 4.7, 4.8)."""

import re
import unicodedata
from collections.abc import Iterator

from benchmark.config.accelerators import ACCELERATORS, accelerator_named
from benchmark.config.description_fields import FIELDS, STATUSES, texts_in
from benchmark.judging.results.subjects import ResultSet
from benchmark.judging.results.system_description import SystemDescription, as_count
from benchmark.judging.review.findings import Deviation
from benchmark.judging.review.rules.naming_rules import NOT_FILLED_IN, SAYS_NOTHING

STRINGS = (
    "submitter", "system_name", "host_processor_model_name", "host_processor_core_count", "accelerator_model_name",
    "accelerators_per_node", "framework", "division", "status",
)  # fmt: skip
"""Fields that the official checker joins: anything but a string stops it with a TypeError."""
NOTES = ("hw_notes", "sw_notes")
"""Fields that the summarizer joins, unless they are empty or null."""
UNFIT = ("Cc", "Zl", "Zp", "Cs")
"""Categories of characters with which a value could write a line into the tools' output, or stop the tools."""
COUNTS = ("number_of_nodes", "accelerators_per_node", "host_processors_per_node")
"""Fields that the summarizer converts with int()."""
DEVICES = COUNTS[:2]
"""Fields that count at least one."""
NAMES = ("submitter", "system_name", "accelerator_model_name", "framework", "host_processor_model_name")
MEMORY = re.compile(r"(?i)([\d.,]{1,12})\s*(GB|GiB|MB|MiB|TB)")
BYTES = {"GB": 1e9, "GIB": 2**30, "MB": 1e6, "MIB": 2**20, "TB": 1e12}
MEMORY_OFF = (0.85, 1.2)
"""Range of a device's memory over the model's size; published descriptions have at most 1.07, since drivers count in
binary units."""
SINCE = "4.1.0"
"""First ruleset that allows only the listed statuses; round 4.0 accepted the short words of earlier rounds."""


def readable(results: ResultSet) -> Iterator[Deviation]:
    for system in filter(None, [results.system]):
        if system.problem is not None:
            yield Deviation(system.path, system.problem_line, system.problem, "a JSON object")
        for name in system.repeated:
            yield Deviation(system.path, system.line(name), f"field {name!r} twice", "every field once", "repeated")


def fields(results: ResultSet) -> Iterator[Deviation]:
    """Check the mandatory fields: their types, and values that the official tools take."""
    for system in filter(None, [results.system]):
        content = system.content
        for name in (field.name for field in FIELDS) if system.problem is None else ():
            if name not in content:
                yield Deviation(system.path, 1, f"no {name}", f"all of {len(FIELDS)} fields")
        for name in (*STRINGS, *NOTES):
            value = content.get(name, "")
            if not isinstance(value, str) and (value or name in STRINGS):
                yield _wrong(system, name, value, "a string, in quotes")
            elif name in STRINGS and any(unicodedata.category(letter) in UNFIT for letter in value):
                yield _wrong(system, name, value, "one line of text: the tools print it as it is")
        for name in COUNTS:
            count = as_count(content.get(name))
            fits = count is not None and (count >= 1 or name not in DEVICES)
            if name in content and not fits and (name not in STRINGS or isinstance(content[name], str)):
                yield _wrong(system, name, content[name], "a whole number, in quotes")
        status, division = system.string("status"), system.string("division")
        if results.ruleset >= SINCE and status is not None and status not in STATUSES:
            yield _wrong(system, "status", status, " | ".join(STATUSES))
        if division not in (None, "closed", "open"):
            yield _wrong(system, "division", division, "'closed' or 'open'")


def filled_in(results: ResultSet) -> Iterator[Deviation]:
    for system in filter(None, [results.system]):
        for name, value in system.content.items():
            mark = next((text for _, text in texts_in({name: value}) if NOT_FILLED_IN.search(text)), None)
            if mark is not None:
                yield _wrong(system, name, mark, "a value, or an empty string")
            elif name in NAMES and isinstance(value, str) and SAYS_NOTHING.match(value):
                yield _wrong(system, name, value, "a name")


def memory(results: ResultSet) -> Iterator[Deviation]:
    """Check for a device memory that its maker does not sell."""
    for system in filter(None, [results.system]):
        model = accelerator_named(system.string("accelerator_model_name") or "")
        usual_gb = None if model is None else ACCELERATORS[model].memory_gb
        text = system.string("accelerator_memory_capacity") or ""
        capacity = MEMORY.fullmatch(text.strip())
        if usual_gb is not None and capacity is not None:
            size = float(capacity[1].replace(",", "")) * BYTES[capacity[2].upper()] / 1e9
            if not MEMORY_OFF[0] * usual_gb <= size <= MEMORY_OFF[1] * usual_gb:
                yield _wrong(system, "accelerator_memory_capacity", text, f"about {usual_gb:g} GB of {model}")


def _wrong(system: SystemDescription, name: str, value: object, expected: str) -> Deviation:
    return Deviation(system.path, system.line(name), f"{name} {value!r:.80}", expected)
