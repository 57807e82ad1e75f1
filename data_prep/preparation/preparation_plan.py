"""Estimate the time to prepare the real data, step by step, and its limits, from measured rates.

A step is the share of a command's work that one resource limits: ``preprocess`` takes two, tokenising and joining. The
steps are counted one after the other. All nodes read and write one file system.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from data_prep.preparation.artifacts import ARTIFACTS
from foundation.cli import JsonOption
from foundation.errors import InputError
from foundation.plain_text import counted, folded, table_text
from foundation.sizes import about, require_workers

BenchmarkName = Literal["gpt3_175b", "llama31_8b"]

MB = 1e6
GB = 1e9
OF_TEXT = ("tokenise", "join")
"""Steps, and rates of the same names, of data that come as text."""


@dataclass(frozen=True)
class DataSizes:
    """The data of one benchmark; the few validation documents are left out of account."""

    fetched_bytes: float
    """Bytes that are downloaded."""
    files: int
    """Files of text, each for one worker; 0 if the token files are published."""
    text_bytes: float
    """Bytes of text, unpacked."""
    datasets: int
    """Training datasets, of one size."""
    documents: int
    tokens: float
    token_bytes: int
    samples: float
    """Samples in each dataset."""
    index_s: float
    """Seconds to build sample and shuffle indices of all datasets before the clock of the first run, one core per
    dataset."""
    index_bytes: float
    """Bytes of the indices that are kept beside all datasets for one seed."""
    checkpoint_bytes: float
    """Bytes of the initial checkpoint, which has commands of its own; 0 if training begins with random weights."""

    @property
    def dataset_bytes(self) -> float:
        """Bytes of all ``.bin`` and ``.idx``, which has 4 per document for the length, 8 for the pointer and 8 for the
        end (docs/facts/reference.md a.1)."""
        return self.token_bytes * self.tokens + 20 * self.documents

    @property
    def disk_bytes(self) -> float:
        """Most bytes on the disk: the shards, their parts, and the datasets joined from them; or published datasets.

        The indices of one seed are included.
        """
        return self.fetched_bytes + self.index_bytes + (2 * self.dataset_bytes if self.files else 0)


DATA: dict[BenchmarkName, DataSizes] = {
    "gpt3_175b": DataSizes(  # docs/facts/reference.md a.6; docs/facts/peers.md 1.3
        fetched_bytes=ARTIFACTS["train"].bytes,
        files=256,
        text_bytes=200 * GB,
        datasets=2,
        documents=91_217_223,
        tokens=44e9,
        token_bytes=2,
        samples=10.7e6,
        index_s=8.0,
        index_bytes=0.44 * GB,
        checkpoint_bytes=ARTIFACTS["checkpoint"].bytes,
    ),
    "llama31_8b": DataSizes(  # follows from the sizes of the published files
        fetched_bytes=ARTIFACTS["llama31-dataset"].bytes,
        files=0,
        text_bytes=0,
        datasets=1,
        documents=45_608_611,
        tokens=20_994_193_570,
        token_bytes=4,
        samples=20_523_871,  # 8 epochs in shuffled order, for the reference's 1,200,000 steps
        index_s=40.0,
        index_bytes=1.71 * GB,
        checkpoint_bytes=0,
    ),
}
"""By the benchmark's name."""


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
    "join": Rate(400.0, "parts to .bin with its MD5, one core per dataset; AMD EPYC core, virtual disk"),
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


def _make_plan(data: DataSizes, nodes: int, cores: int, workers: int, rates: Mapping[str, Rate]) -> PreparationPlan:
    rate = {name: rate.mb_per_s * MB for name, rate in rates.items()}
    datasets, fetched = data.dataset_bytes, data.fetched_bytes
    by_dataset = datasets / min(data.datasets, nodes * cores)
    files, busy = math.ceil(data.files / nodes), min(workers, cores)
    rounds = math.ceil(files / busy)  # every node takes its share of the files, and each is one worker's
    tokenise_s = rounds * data.text_bytes / max(1, data.files) / rate["tokenise"]
    tokenise_limit = "cores" if workers >= cores else f"--workers {workers}"
    if rounds * busy > 1.2 * files:
        tokenise_limit = f"files ({files} on {busy} cores)"
    is_text, samples = data.files > 0, f"{data.datasets} x {data.samples / 1e6:.1f} M samples"
    table = (  # name, work, seconds by the usual limit, this limit, bytes that the disk reads and writes
        ("fetch", _gb(fetched) + " compressed" * is_text, fetched / rate["network"], "network", fetched),
        ("tokenise", f"{_gb(data.text_bytes)} of text to parts", tokenise_s, tokenise_limit, fetched + datasets),
        ("join", f"{_gb(datasets)} of parts", by_dataset / rate["join"], "one core per dataset", 2 * datasets),
        ("index", samples, data.index_s, "one core per dataset", 20 * data.documents),
        ("verify", f"MD5 of {_gb(datasets)}", by_dataset / rate["md5"], "one core per file", datasets),
    )
    steps = []
    for name, work, seconds, limit, disk_bytes in table:
        if name in OF_TEXT and not is_text:
            continue
        disk_s = disk_bytes / rate["disk"]
        steps.append(StepEstimate(name, work, max(seconds, disk_s), "disk" if disk_s > seconds else limit))
    return PreparationPlan(nodes, cores, workers, steps, sum(step.seconds for step in steps))


def format_plans(data: DataSizes, plans: Sequence[PreparationPlan], rates: Mapping[str, Rate]) -> str:
    """Return a line per step with its times, the work and its limits; then the rates."""
    counts = [counted(plan.nodes, "node") for plan in plans]
    rows = []
    for steps in zip(*(plan.stages for plan in plans), strict=True):
        nodes: dict[str, list[str]] = {}
        for plan, step in zip(plans, steps, strict=True):
            nodes.setdefault(step.limit, []).append(f"{plan.nodes}")
        limits = [
            f"{limit} on {', '.join(of)} node{'s' * (of != ['1'])}" if len(nodes) > 1 else limit
            for limit, of in nodes.items()
        ]
        times = (about(step.seconds) for step in steps)
        rows.append([steps[0].name, *times, f"{steps[0].work}; limited by {'; '.join(limits)}"])
    rows.append(["total", *(about(plan.seconds) for plan in plans), f"{data.tokens / 1e9:.0f}e9 tokens"])
    cores = f"on nodes of {plans[0].cores} cores"
    table = table_text(["step", *counts, f"work {cores}"], rows, right=range(1, len(plans) + 1))
    rate_lines = [
        f"rate: {name} {rate.mb_per_s:,.0f} MB/s ({rate.source})"
        for name, rate in rates.items()
        if data.files or name not in OF_TEXT
    ]
    besides = f"{_gb(data.checkpoint_bytes)} more (python -m checkpoint_convert plan)"
    checkpoint = f"initial checkpoint: {besides if data.checkpoint_bytes else 'none'}"
    return "\n".join([table, f"disk space: {_gb(data.disk_bytes)}", *map(folded, (checkpoint, *rate_lines))])


def _gb(size: float) -> str:
    return f"{size / GB:,.0f} GB"


@dataclass(frozen=True, kw_only=True)
class PlanPreparationCommand(JsonOption):
    """Estimate how long the benchmark's data takes to prepare, and the limit of each step. Reads nothing.

    Example: python -m data_prep plan --nodes 1 8 --cores 64 --disk-mb-per-s 5000
    """

    benchmark: BenchmarkName = "gpt3_175b"
    """The benchmark whose data are prepared."""
    nodes: tuple[int, ...] = (1, 8)
    """Numbers of nodes, one plan for each."""
    cores: int = 64
    """Cores per node."""
    workers: int | None = None
    """The --workers of preprocess on each node; by default one per core."""
    mb_per_s_per_core: float | None = None
    """Text that one core tokenises, in 10^6 bytes per second; by default a measured rate."""
    disk_mb_per_s: float | None = None
    """Bytes that the file system reads and writes for all nodes together, in 10^6 per second."""
    network_mb_per_s: float | None = None
    """Bytes that arrive from Hugging Face, in 10^6 per second."""

    def run(self) -> None:
        requested_rates = {
            "tokenise": self.mb_per_s_per_core,
            "disk": self.disk_mb_per_s,
            "network": self.network_mb_per_s,
        }
        rates = dict(RATES)
        for name, rate in requested_rates.items():
            if rate is not None:
                if not 0 < rate < math.inf:
                    option = "--mb-per-s-per-core" if name == "tokenise" else f"--{name}-mb-per-s"
                    raise InputError(f"{option} {rate:g}: expected more than 0")
                rates[name] = Rate(rate, "given")
        if not self.nodes or min(*self.nodes, self.cores) < 1:
            numbers = " ".join(map(str, self.nodes))
            raise InputError(f"--nodes {numbers} --cores {self.cores}: expected at least 1 of each")
        if self.workers is not None:
            require_workers(self.workers)
        data = DATA[self.benchmark]
        plans = [_make_plan(data, number, self.cores, self.workers or self.cores, rates) for number in self.nodes]
        result = {
            "rates": {name: asdict(rate) for name, rate in rates.items()},
            "fetched_bytes": data.fetched_bytes,
            "disk_bytes": data.disk_bytes,
            "checkpoint_bytes": data.checkpoint_bytes,
            "plans": [asdict(plan) for plan in plans],
        }
        print(json.dumps(result, indent=1) if self.json else format_plans(data, plans, rates))
