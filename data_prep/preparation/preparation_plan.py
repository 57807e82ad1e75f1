"""Estimate the time to prepare the real data, step by step, and its limits, from measured rates.

A step is the share of a command's work that one resource limits: ``preprocess`` takes two, tokenising and joining. The
steps are counted one after the other. All nodes read and write one file system.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stage.errors import InputError
from stage.sizes import duration, require_workers
from stage.tables import table_text

MB = 1e6
GB = 1e9

# Sizes: docs/facts/reference.md a.6; docs/facts/peers.md 1.3.
FILES = 256
DATASETS = 2
PACKED_BYTES = 76 * GB
TEXT_BYTES = 200 * GB
DOCUMENTS = 91_217_223
TOKENS = 44e9
BIN_BYTES = 2 * TOKENS
IDX_BYTES = 20 * DOCUMENTS
"""Bytes of the indices: per document 4 for the length, 8 for the pointer and 8 for the end (docs/facts/reference.md
a.1)."""
DISK_BYTES = PACKED_BYTES + 2 * (BIN_BYTES + IDX_BYTES)
"""Most bytes on the disk: the shards, the pieces, and the datasets joined from them."""

INDEX_S = 8.0
"""Seconds to build sample and shuffle indices of both datasets before the clock of the first run, one core per
dataset."""


@dataclass(frozen=True)
class Rate:
    """A speed that the plan computes with."""

    mb_per_s: float
    """10^6 bytes per second."""
    source: str
    """Machine that the rate was measured on, or that it is assumed."""


RATES: dict[str, Rate] = {
    "network": Rate(125.0, "assumed: 1 Gbit/s"),
    "disk": Rate(2000.0, "assumed: one NVMe drive, or that much of a shared file system"),
    "tokenise": Rate(31.0, "text per core; AMD EPYC core, python -m tests.speed.tokenise"),
    "join": Rate(400.0, "pieces to .bin with its MD5, one core per dataset; AMD EPYC core, virtual disk"),
    "md5": Rate(767.0, "per core, one core per file; AMD EPYC core (docs/facts/peers.md 1.3)"),
}


@dataclass(frozen=True)
class StepEstimate:
    """One step and its duration."""

    name: str
    work: str
    seconds: float
    limit: str
    """Resource that limits the step."""


@dataclass(frozen=True)
class PreparationPlan:
    """All steps on a number of nodes."""

    nodes: int
    cores: int
    """Cores per node."""
    workers: int
    """Processes that tokenise, per node."""
    stages: list[StepEstimate]
    seconds: float


def with_rates(**mb_per_s: float | None) -> dict[str, Rate]:
    """Return ``RATES``, replaced by the given ones. Raises InputError for a rate that is not positive."""
    given = {name: rate for name, rate in mb_per_s.items() if rate is not None}
    for name, rate in given.items():
        if not 0 < rate < math.inf:
            raise InputError(f"a rate of {rate} MB/s for {name}: expected more than 0")
    return RATES | {name: Rate(rate, "given") for name, rate in given.items()}


def make_plans(
    nodes: Sequence[int], cores: int, rates: Mapping[str, Rate], *, workers: int | None = None
) -> list[PreparationPlan]:
    """Return a plan for each number of nodes of ``cores`` cores each, with ``workers`` processes on each (None: one per
    core).

    Raises InputError if any number is less than one.
    """
    if not nodes or min(*nodes, cores) < 1:
        raise InputError(f"--nodes {' '.join(map(str, nodes))} --cores {cores}: expected at least 1 of each")
    if workers is not None:
        require_workers(workers)
    return [_make_plan(number, cores, cores if workers is None else workers, rates) for number in nodes]


def _make_plan(nodes: int, cores: int, workers: int, rates: Mapping[str, Rate]) -> PreparationPlan:
    rate = {name: rate.mb_per_s * MB for name, rate in rates.items()}
    datasets = BIN_BYTES + IDX_BYTES
    by_dataset = datasets / min(DATASETS, nodes * cores)
    files, busy = math.ceil(FILES / nodes), min(workers, cores)
    rounds = math.ceil(files / busy)  # every node takes its share of the files, and each is one worker's
    tokenise_s = rounds * TEXT_BYTES / FILES / rate["tokenise"]
    tokenise_limit = "cores" if workers >= cores else f"--workers {workers}"
    if rounds * busy > 1.2 * files:
        tokenise_limit = f"files ({files} on {busy} cores)"
    table = (  # name, work, seconds by what usually limits it, and that, bytes that the disk reads and writes
        ("fetch", f"{_gb(PACKED_BYTES)} compressed", PACKED_BYTES / rate["network"], "network", PACKED_BYTES),
        ("tokenise", f"{_gb(TEXT_BYTES)} of text to pieces", tokenise_s, tokenise_limit, PACKED_BYTES + datasets),
        ("join", f"{_gb(datasets)} of pieces", by_dataset / rate["join"], "one core per dataset", 2 * datasets),
        ("index", "2 x 10.7 M samples", INDEX_S, "one core per dataset", IDX_BYTES),
        ("verify", f"MD5 of {_gb(datasets)}", by_dataset / rate["md5"], "one core per file", datasets),
    )
    steps = []
    for name, work, seconds, limit, disk_bytes in table:
        disk_s = disk_bytes / rate["disk"]
        steps.append(StepEstimate(name, work, max(seconds, disk_s), "disk" if disk_s > seconds else limit))
    return PreparationPlan(nodes, cores, workers, steps, sum(step.seconds for step in steps))


def plans_as_json(plans: Sequence[PreparationPlan], rates: Mapping[str, Rate]) -> dict[str, Any]:
    """Return rates, disk space and plans as JSON values."""
    return {
        "rates": {name: asdict(rate) for name, rate in rates.items()},
        "disk_bytes": DISK_BYTES,
        "plans": [asdict(plan) for plan in plans],
    }


def format_plans(plans: Sequence[PreparationPlan], rates: Mapping[str, Rate]) -> str:
    """Return a line per step, the plans side by side; then the rates."""
    titles = ["step", "work"]
    total = ["total", f"{TOKENS / 1e9:.0f}e9 tokens"]
    for plan in plans:
        titles += [f"{plan.nodes} node{'s' if plan.nodes > 1 else ''} of {plan.cores} cores", "limited by"]
        total += [duration(plan.seconds), ""]
    rows = [
        [steps[0].name, steps[0].work, *(text for step in steps for text in (duration(step.seconds), step.limit))]
        for steps in zip(*(plan.stages for plan in plans), strict=True)
    ]
    table = table_text(titles, [*rows, total], right=range(2, len(titles), 2))
    told = [f"rate: {name} {rate.mb_per_s:,.0f} MB/s ({rate.source})" for name, rate in rates.items()]
    return "\n".join([table, f"disk space: {_gb(DISK_BYTES)}", *told])


def _gb(size: float) -> str:
    return f"{size / GB:,.0f} GB"
