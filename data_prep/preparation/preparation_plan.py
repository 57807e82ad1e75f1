"""How long the real data takes to prepare, step by step, and what limits each: arithmetic on measured rates.

A step is the part of a command that one resource limits: ``preprocess`` takes two, tokenising and joining. (The table
and its JSON call them stages.) They are counted one after the other, though one node joins parts while it still
tokenises. All nodes read and write one file system.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from data_prep.preprocessing.worker_shares import time_of, workers_per_file
from stage.errors import InputError

MB = 1e6
GB = 1e9

# Sizes: docs/facts/reference.md a.6; docs/facts/peers.md 1.3.
FILES = 256
DATASETS = 2
COMPRESSED_BYTES = 76 * GB
TEXT_BYTES = 200 * GB
DOCUMENTS = 91_217_223
TOKENS = 44e9
BIN_BYTES = 2 * TOKENS
IDX_BYTES = 20 * DOCUMENTS
"""Lengths 4, pointers 8 and document ends 8 bytes each (docs/facts/reference.md a.1)."""

TEXT_MB_PER_S_PER_CORE = 31.0
INDEX_S = 8.0
"""Sample and shuffle indices of both datasets, before the clock of the first run; one core per dataset."""


@dataclass(frozen=True)
class Rate:
    mb_per_s: float
    """10^6 bytes per second."""
    source: str
    """Where it was measured, or that it is assumed."""


RATES: dict[str, Rate] = {
    "network": Rate(125.0, "assumed: 1 Gbit/s"),
    "disk": Rate(2000.0, "assumed: one NVMe drive, or that much of a shared file system"),
    "tokenise": Rate(TEXT_MB_PER_S_PER_CORE, "text per core; AMD EPYC core, python -m tests.speed.tokenise"),
    "join": Rate(400.0, "parts to .bin with its MD5, one core per dataset; AMD EPYC core, virtual disk"),
    "md5": Rate(767.0, "per core, one core per file; AMD EPYC core (docs/facts/peers.md 1.3)"),
}


@dataclass(frozen=True)
class StepEstimate:
    name: str
    work: str
    seconds: float
    limit: str
    """The resource that a faster step would need more of."""


@dataclass(frozen=True)
class PreparationPlan:
    nodes: int
    cores: int
    """Per node."""
    steps: list[StepEstimate]

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


def with_rates(**mb_per_s: float | None) -> dict[str, Rate]:
    """``RATES`` with those given in their place. Raises InputError for a rate that is not positive."""
    rates = dict(RATES)
    for name, rate in mb_per_s.items():
        if rate is not None:
            if not 0 < rate < math.inf:
                raise InputError(f"a rate of {rate} MB/s for {name}: expected more than 0")
            rates[name] = Rate(rate, "given")
    return rates


def make_plans(nodes: Sequence[int], cores: int, rates: Mapping[str, Rate]) -> list[PreparationPlan]:
    """A plan for each number of nodes of ``cores`` each. Raises InputError for less than one of either."""
    if not nodes or min(*nodes, cores) < 1:
        raise InputError(f"--nodes {' '.join(map(str, nodes))} --cores {cores}: expected at least 1 of each")
    return [_make_plan(number, cores, rates) for number in nodes]


def _make_plan(nodes: int, cores: int, rates: Mapping[str, Rate]) -> PreparationPlan:
    rate = {name: rate.mb_per_s * MB for name, rate in rates.items()}
    dataset_bytes = BIN_BYTES + IDX_BYTES
    network_s = COMPRESSED_BYTES / rate["network"]
    tokenise_s, tokenise_limit = _tokenise(nodes, cores, rate["tokenise"])
    streams = min(DATASETS, nodes * cores)
    join_s = dataset_bytes / (streams * rate["join"])
    md5_s = dataset_bytes / (streams * rate["md5"])

    def step(name: str, work: str, limit: str, seconds: float, disk_bytes: float) -> StepEstimate:
        disk_s = disk_bytes / rate["disk"]
        return StepEstimate(name, work, *((disk_s, "disk") if disk_s > seconds else (seconds, limit)))

    return PreparationPlan(
        nodes,
        cores,
        [
            step("fetch", f"{_gb(COMPRESSED_BYTES)} compressed", "network", network_s, COMPRESSED_BYTES),
            step(
                "tokenise",
                f"{_gb(TEXT_BYTES)} of text to parts",
                tokenise_limit,
                tokenise_s,
                COMPRESSED_BYTES + dataset_bytes,
            ),
            step("join", f"{_gb(dataset_bytes)} of parts", "one core per dataset", join_s, 2 * dataset_bytes),
            step("index", "2 x 10.7 M samples", "one core per dataset", INDEX_S, IDX_BYTES),
            step("verify", f"MD5 of {_gb(dataset_bytes)}", "one core per file", md5_s, dataset_bytes),
        ],
    )


def _tokenise(nodes: int, cores: int, bytes_per_s: float) -> tuple[float, str]:
    """Seconds and limit. Every node takes its share of the files, with as many workers to a file as end soonest."""
    files = [TEXT_BYTES / FILES] * math.ceil(FILES / nodes)
    seconds = time_of(files, workers_per_file(files, cores), cores) / bytes_per_s
    perfect = TEXT_BYTES / (nodes * cores) / bytes_per_s
    return seconds, "cores" if seconds < 1.2 * perfect else f"files ({len(files)} on {cores} cores)"


def disk_bytes() -> float:
    """Disk space at the fullest: the shards, the parts, and the datasets they are joined to."""
    return COMPRESSED_BYTES + 2 * (BIN_BYTES + IDX_BYTES)


def plans_as_json(plans: Sequence[PreparationPlan], rates: Mapping[str, Rate]) -> dict[str, Any]:
    return {
        "rates": {name: asdict(rate) for name, rate in rates.items()},
        "disk_bytes": disk_bytes(),
        "plans": [_plan_as_json(plan) for plan in plans],
    }


def _plan_as_json(plan: PreparationPlan) -> dict[str, Any]:
    stages = [asdict(step) for step in plan.steps]
    return {"nodes": plan.nodes, "cores": plan.cores, "stages": stages, "seconds": plan.seconds}


def format_plans(plans: Sequence[PreparationPlan], rates: Mapping[str, Rate]) -> str:
    """One line per step, the plans side by side; then the rates."""
    titles = [f"{plan.nodes} node{'s' if plan.nodes > 1 else ''} of {plan.cores} cores" for plan in plans]
    lines = [f"{'stage':<9} {'work':<26}" + "".join(f" {title:<34}" for title in titles)]
    for steps in zip(*(plan.steps for plan in plans), strict=True):
        times = (f" {_duration(step.seconds):>9}  {step.limit:<23}" for step in steps)
        lines.append(f"{steps[0].name:<9} {steps[0].work:<26}" + "".join(times))
    totals = (f" {_duration(plan.seconds):>9}  {'':<23}" for plan in plans)
    lines.append(f"{'total':<9} {f'{TOKENS / 1e9:.0f}e9 tokens':<26}" + "".join(totals))
    lines.append(f"disk space: {_gb(disk_bytes())}")
    lines += [f"rate: {name} {rate.mb_per_s:,.0f} MB/s ({rate.source})" for name, rate in rates.items()]
    return "\n".join(line.rstrip() for line in lines)


def _gb(size: float) -> str:
    return f"{size / GB:,.0f} GB"


def _duration(seconds: float) -> str:
    """'1 h 05 min', '10 min 08 s', '15 s'."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"
