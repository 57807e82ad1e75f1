"""System descriptions: fields, their types and values (docs/facts/mlperf_review.md 4.5, 4.6, 4.7, 4.8)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS, accelerator_named
from benchmark.results.system_description import SystemDescription, as_count
from benchmark.review.findings import Deviation

REQUIRED = (
    "submitter", "division", "status", "system_name", "number_of_nodes", "host_processors_per_node",
    "host_processor_model_name", "host_processor_core_count", "host_processor_vcpu_count", "host_processor_frequency",
    "host_processor_caches", "host_processor_interconnect", "host_memory_capacity", "host_storage_type",
    "host_storage_capacity", "host_networking", "host_networking_topology", "host_memory_configuration",
    "accelerators_per_node", "accelerator_model_name", "accelerator_host_interconnect", "accelerator_frequency",
    "accelerator_on-chip_memories", "accelerator_memory_configuration", "accelerator_memory_capacity",
    "accelerator_interconnect", "accelerator_interconnect_topology", "cooling", "hw_notes", "framework",
    "other_software_stack", "operating_system", "sw_notes",
)  # fmt: skip
"""Presence is enough for the checker; the hyphen in on-chip is its own."""
STRINGS = (
    "submitter", "system_name", "host_processor_model_name", "host_processor_core_count", "accelerator_model_name",
    "accelerators_per_node", "framework",
)  # fmt: skip
"""The checker joins them: anything but a string kills it with a TypeError."""
COUNTS = ("number_of_nodes", "accelerators_per_node", "host_processors_per_node")
"""The summarizer takes int() of them."""
MOST = {"number_of_nodes": 100_000, "accelerators_per_node": 1_024, "host_processors_per_node": 64}
"""Published: at most 1,536 nodes of 8 accelerators and 2 processors."""
NAMES = ("submitter", "system_name", "accelerator_model_name", "framework", "host_processor_model_name")
MEMORY = re.compile(r"(?i)([\d.,]{1,12})\s*(GB|GiB|MB|MiB|TB)")
BYTES = {"GB": 1e9, "GIB": 2**30, "MB": 1e6, "MIB": 2**20, "TB": 1e12}
MEMORY_OFF = (0.85, 1.2)
"""Of what the model is sold with; published: at most 1.07, since drivers count in binary units."""
STATUSES = ("Available on-premise", "Available cloud", "Research, Development, or Internal (RDI)", "Preview")
NOT_FILLED_IN = re.compile(
    r"(?i)\b(todo|fixme|placeholder|fill[ _-]?in|tbd|tba|xxx+)\b|\binsert\b.*\bhere\b|_PLACEHOLDER|^<.*>$|^\$\{?\w+\}?$"
    r"|^\?+$"
)
"""Marks that templates and people leave where something is still to be written."""
SAYS_NOTHING = re.compile(r"(?i)^\s*(unknown|n/?a|not applicable|none|-+|\.+)?\s*$")
"""Of a name; elsewhere, as of caches, it may be all that is known."""
NOT_AVAILABLE = re.compile(
    r"(?i)\b(engineering sample|not for sale|pre-?production|prototype|preview|pre-?release)s?\b"
)
NOTES = ("hw_notes", "sw_notes")


@dataclass(frozen=True)
class Described:
    """A description and the ruleset it is checked by."""

    description: SystemDescription
    ruleset: str


def readable(subject: Described) -> Iterator[Deviation]:
    description = subject.description
    if description.problem is not None:
        yield Deviation(description.path, 1, description.problem, "a JSON object", "write it anew as UTF-8 JSON")
    for name in description.repeated:
        due, mend = "every field once", "remove one: readers take the last, people the first"
        yield Deviation(description.path, description.line(name), f"field {name!r} twice", due, mend)


def fields(subject: Described) -> Iterator[Deviation]:
    description = subject.description
    if description.problem is None:
        for name in REQUIRED:
            if name not in description.content:
                due = f"all of {len(REQUIRED)} fields"
                yield Deviation(description.path, 1, f"no {name}", due, f'add "{name}": an empty string is allowed')


def strings(subject: Described) -> Iterator[Deviation]:
    for name in (*STRINGS, "division", "status"):
        value = subject.description.content.get(name, "")
        if not isinstance(value, str):
            mend = f"put it in quotes: {value!r:.40} kills the official checkers"
            yield _wrong(subject, name, value, "a string", mend)
        elif not value.isprintable():
            yield _wrong(subject, name, value, "printable characters", "write it on one line: tools print it as it is")


def status(subject: Described) -> Iterator[Deviation]:
    """Four long strings since round 4.0; free text before."""
    yield from _status(subject, not subject.ruleset.startswith(("3.", "4.0")))


def status_of_round_4_0(subject: Described) -> Iterator[Deviation]:
    """Seven systems of that round were accepted with `cloud` or `onprem`, which today's tools refuse."""
    yield from _status(subject, subject.ruleset == "4.0.0")


def _status(subject: Described, applies: bool) -> Iterator[Deviation]:
    value = subject.description.content.get("status")
    if applies and isinstance(value, str) and value not in STATUSES:
        yield _wrong(subject, "status", value, " | ".join(STATUSES), "write one of these, letter by letter")


def division(subject: Described) -> Iterator[Deviation]:
    value = subject.description.content.get("division")
    if isinstance(value, str) and value not in ("closed", "open"):
        mend = "write it in lower case: any other spelling silently turns off the seed and RCP checks"
        yield _wrong(subject, "division", value, "'closed' or 'open'", mend)


def counts(subject: Described) -> Iterator[Deviation]:
    for name in COUNTS:
        if name in subject.description.content and as_count(subject.description.content[name]) is None:
            value = subject.description.content[name]
            yield _wrong(subject, name, value, "a whole number, in quotes", "the official summarizer takes int() of it")


def positive(subject: Described) -> Iterator[Deviation]:
    """Zero, negative and absurd numbers of machines and devices."""
    for name, most in MOST.items():
        count = subject.description.count(name)
        if count is not None and not 1 <= count <= most:
            yield _wrong(subject, name, count, f"1 to {most:,}", "give the number in the system that made the results")


def named(subject: Described) -> Iterator[Deviation]:
    for name in NAMES:
        value = subject.description.content.get(name)
        if isinstance(value, str) and SAYS_NOTHING.match(value):
            yield _wrong(subject, name, value, "a name", "fill it in: readers look for it first")


def available(subject: Described) -> Iterator[Deviation]:
    """Something available whose notes say that it is not."""
    status = subject.description.string("status") or ""
    for name in NOTES if status.startswith("Available") else ():
        found = NOT_AVAILABLE.search(subject.description.string(name) or "")
        if found is not None:
            mend = "say whether it can be bought or rented; what cannot is Preview or RDI"
            yield _wrong(subject, name, found[0], f"what {status!r} means", mend)


def filled_in(subject: Described) -> Iterator[Deviation]:
    for name, value in subject.description.content.items():
        for text in _texts(value):
            if NOT_FILLED_IN.search(text):
                yield _wrong(subject, name, text, "a value, or an empty string", "fill it in, or leave it empty")
                break


def strict_json(subject: Described) -> Iterator[Deviation]:
    """NaN and Infinity are read by Python's reader, and by no other."""
    for name in subject.description.constants:
        mend = "write a number, or leave the field an empty string"
        yield Deviation(subject.description.path, 1, f"the value {name}", "JSON, which has no such number", mend)


def memory(subject: Described) -> Iterator[Deviation]:
    """The memory of a device that its maker does not sell with so much."""
    description = subject.description
    model = accelerator_named(description.string("accelerator_model_name") or "")
    due = None if model is None else ACCELERATORS[model].memory_gb
    text = description.string("accelerator_memory_capacity") or ""
    found = MEMORY.fullmatch(text.strip())
    if due is not None and found is not None:
        size = float(found[1].replace(",", "")) * BYTES[found[2].upper()] / 1e9
        if not MEMORY_OFF[0] * due <= size <= MEMORY_OFF[1] * due:
            mend = "give the memory of one device of the model that made the results"
            yield _wrong(subject, "accelerator_memory_capacity", text, f"about {due:g} GB of {model}", mend)


def one_accelerator(subject: Described) -> Iterator[Deviation]:
    """A name in which two models of the table are found, whose peaks differ."""
    value = subject.description.string("accelerator_model_name") or ""
    families = {name.split()[0].split("-")[0] for name, one in ACCELERATORS.items() if re.search(one.pattern, value)}
    if len(families) > 1:
        mend = "name the one that made the results; two kinds of devices are two systems"
        yield _wrong(subject, "accelerator_model_name", value, "one accelerator", mend)


def _texts(value: object) -> Iterator[str]:
    """Every string in a value, names of nested fields included; parsed JSON is never deep enough to matter."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one


def _wrong(subject: Described, name: str, value: object, due: str, mend: str) -> Deviation:
    description = subject.description
    return Deviation(description.path, description.line(name), f"{name} {value!r:.80}", due, mend)
