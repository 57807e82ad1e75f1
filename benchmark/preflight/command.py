"""The table of checks, and running them: ``python -m benchmark preflight``."""

import contextlib
import dataclasses
import datetime
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from benchmark.config import RunConfig, System
from benchmark.distributed import joined_world, read_environment
from benchmark.preflight import devices, machine, together
from benchmark.preflight.check import Check, Finding, Measured, Place

PATIENCE = datetime.timedelta(minutes=5)
"""For all processes to come, and for any message."""

CHECKS = (
    Check("packages", "an import error after hours in the queue", "node", machine.packages),
    Check("versions", "nodes with different images or drivers", "node", machine.versions, machine.same_versions),
    Check("devices", "fewer devices than the topology takes", "node", devices.present, devices.as_the_system_says),
    Check("device memory", "running out of it beside another job", "process", devices.memory_free),
    Check("device health", "wrong numbers, or a crash within hours", "node", devices.health),
    Check("products", "wrong numbers", "process", devices.right_products),
    Check("speed", "one slow GPU that slows all", "process", devices.speeds, devices.alike_in_speed),
    Check("limits", "NCCL or data loading failing at the start", "node", machine.limits),
    Check("host memory", "being killed at the first checkpoint", "node", machine.host_memory),
    Check("disk space", "a disk that is full before the end", "node", machine.disk_space),
    Check("run folder", "a run that cannot write, lock or begin there", "node", machine.run_folder),
    Check("shared folder", "checkpoints that each node writes for itself", "process", together.shared_folder),
    Check("inputs", "data or a checkpoint that train refuses", "job", machine.inputs),
    Check("same inputs", "nodes with different copies", "node", machine.manifests, machine.same_manifests),
    Check("clock", "logs that no checker accepts", "node", machine.clock),
    Check("clocks", "logs whose times do not agree", "process", together.now, together.clocks_agree),
    Check("port", "processes that cannot meet", "job", machine.port),
    Check("all-reduce", "wrong or slow sums", "process", together.sums, together.right_sums),
    Check("ring", "one slow or wrong link", "process", together.ring, together.links_alike),
)


@dataclass(frozen=True)
class Row:
    """A line of the result."""

    name: str
    protects_from: str
    outcome: str
    found: str
    mend: str
    seconds: float


def preflight(config: RunConfig | None, *, as_json: bool) -> int:
    """Run every check and print a line for each; 0 if none failed. Collective where there are several processes.

    Raises InputError when the run's sizes do not fit together, or when the processes cannot meet.
    """
    if config is not None:
        config.require_fit()
    with _place(config) as place:
        rows = []
        for check in CHECKS:
            row = _row(check, place)
            if row is not None:
                rows.append(row)
                if not as_json:
                    print(_line(row), flush=True)
        failed = any(row.outcome == "FAILED" for row in rows)
        if place.environment.rank == 0 and as_json:
            print(json.dumps({"passed": not failed, "checks": [dataclasses.asdict(row) for row in rows]}))
        elif place.environment.rank == 0:
            counts = Counter(row.outcome for row in rows)
            print("preflight: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
        return int(failed) if place.world is None else place.world.from_rank_0(int(failed))


@contextlib.contextmanager
def _place(config: RunConfig | None) -> Iterator[Place]:
    environment = read_environment()
    if config is not None:
        kind = config.system.device
    else:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if environment.world_size == 1:
        yield Place(config, environment, None, kind)
        return
    count = environment.world_size
    started = System(name="as started", device=kind, nodes=1, devices_per_node=count, micro_batch_size=1)
    with joined_world(config.system if config else started, environment, PATIENCE) as world:
        yield Place(config, environment, world, kind)


def _row(check: Check, place: Place) -> Row | None:
    """The check's line on rank 0, None elsewhere."""
    started = time.perf_counter()
    measured = _gathered(place, _measured(check, place))
    if place.environment.rank != 0:
        return None
    failures = [(name, value) for name, value in measured if isinstance(value, _Failure)]
    if failures:
        name, failure = failures[0]
        finding = Finding("FAILED", f"{name}: {failure.text}", "see what it names")
    else:
        finding = check.judge(place, measured)
    seconds = time.perf_counter() - started
    return Row(check.name, check.protects_from, finding.outcome, finding.found, finding.mend, round(seconds, 3))


@dataclass(frozen=True)
class _Failure:
    """A measurement that did not come about."""

    text: str


def _measured(check: Check, place: Place) -> Any:
    rank, local_rank = place.environment.rank, place.environment.local_rank
    if not {"job": rank == 0, "node": local_rank == 0, "process": True}[check.where]:
        return None
    try:
        return check.measure(place)
    except Exception as error:  # whatever it is, a node where a check cannot run has not passed it
        return _Failure(f"{type(error).__name__}: {' '.join(str(error).split())}")


def _gathered(place: Place, value: Any) -> Measured:
    """What those who took part measured; complete on rank 0."""
    took_part = value is not None
    own = (place.name, took_part, value)
    if place.world is None:
        return [(place.name, value)]
    everywhere: list[tuple[str, bool, Any] | None] = [None] * place.world.size
    dist.all_gather_object(everywhere, own)
    return [(name, value) for name, took_part, value in filter(None, everywhere) if took_part]


def _line(row: Row) -> str:
    mend = f"; mend: {row.mend}" if row.mend else ""
    return f"{row.outcome:<9}{row.name:<15}{row.found}{mend}"
