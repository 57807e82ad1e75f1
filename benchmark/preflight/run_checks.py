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

from benchmark.config.run_config import RunConfig
from benchmark.config.runtime_variables import runtime_environment
from benchmark.config.system_config import System
from benchmark.preflight import device_checks, machine_checks, world_checks
from benchmark.preflight.preflight_check import CheckResult, Measured, Place, PreflightCheck
from benchmark.training.engine.distributed import joined_world, read_environment, set_environment

PATIENCE = datetime.timedelta(minutes=5)
"""For all processes to come, and for any message."""

CHECKS = (
    PreflightCheck("packages", "an import error after hours in the queue", "node", machine_checks.packages),
    PreflightCheck(
        "versions",
        "nodes with different images or drivers",
        "node",
        machine_checks.versions,
        machine_checks.same_versions,
    ),
    PreflightCheck(
        "devices",
        "fewer devices than the topology takes",
        "process",
        device_checks.present,
        device_checks.as_the_system_says,
    ),
    PreflightCheck("device memory", "running out of it beside another job", "process", device_checks.memory_free),
    PreflightCheck("device health", "wrong numbers, or a crash within hours", "node", device_checks.health),
    PreflightCheck("products", "wrong numbers", "process", device_checks.right_products),
    PreflightCheck(
        "speed", "one slow GPU that slows all", "process", device_checks.speeds, device_checks.alike_in_speed
    ),
    PreflightCheck("host name", "gloo waiting where nobody comes", "node", machine_checks.host_name),
    PreflightCheck("limits", "NCCL or data loading failing at the start", "node", machine_checks.limits),
    PreflightCheck("host memory", "being killed at the first checkpoint", "node", machine_checks.host_memory),
    PreflightCheck("disk space", "a disk that is full before the end", "node", machine_checks.disk_space),
    PreflightCheck("run folder", "a run that cannot write, lock or begin there", "node", machine_checks.run_folder),
    PreflightCheck(
        "shared folder", "checkpoints that each node writes for itself", "process", world_checks.shared_folder
    ),
    PreflightCheck("inputs", "data or a checkpoint that train refuses", "job", machine_checks.inputs),
    PreflightCheck(
        "same inputs", "nodes with different copies", "node", machine_checks.manifests, machine_checks.same_manifests
    ),
    PreflightCheck("clock", "logs that no checker accepts", "node", machine_checks.clock),
    PreflightCheck("clocks", "logs whose times do not agree", "process", world_checks.now, world_checks.clocks_agree),
    PreflightCheck("port", "processes that cannot meet", "job", machine_checks.port),
    PreflightCheck("all-reduce", "wrong or slow sums", "process", world_checks.sums, world_checks.right_sums),
    PreflightCheck("ring", "one slow or wrong link", "process", world_checks.ring, world_checks.links_alike),
)


@dataclass(frozen=True)
class PreflightRow:
    """A line of the result."""

    name: str
    protects_from: str
    outcome: str
    found: str
    mend: str
    seconds: float


def run_checks(config: RunConfig | None, *, as_json: bool) -> int:
    """Run every check and print a line for each; 0 if none failed. Collective where there are several processes.

    Raises InputError when the processes cannot meet.
    """
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
    if config is not None:
        set_environment(runtime_environment(config.system, deterministic=config.deterministic))
    count = environment.world_size
    started = System(name="as started", device=kind, nodes=1, devices_per_node=count, micro_batch_size=1)
    with joined_world(config.system if config else started, environment, PATIENCE) as world:
        yield Place(config, environment, world, kind)


def _row(check: PreflightCheck, place: Place) -> PreflightRow | None:
    """The check's line on rank 0, None elsewhere."""
    started = time.perf_counter()
    measured = _gathered(place, _measured(check, place))
    if place.environment.rank != 0:
        return None
    failures = [(name, value) for name, value in measured if isinstance(value, _Failure)]
    if failures:
        name, failure = failures[0]
        finding = CheckResult("FAILED", f"{name}: {failure.text}", "see what it names")
    else:
        finding = check.judge(place, measured)
    seconds = time.perf_counter() - started
    return PreflightRow(
        check.name, check.protects_from, finding.outcome, finding.found, finding.mend, round(seconds, 3)
    )


@dataclass(frozen=True)
class _Failure:
    """A measurement that did not come about."""

    text: str


def _measured(check: PreflightCheck, place: Place) -> Any:
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


def _line(row: PreflightRow) -> str:
    mend = f"; mend: {row.mend}" if row.mend else ""
    return f"{row.outcome:<9}{row.name:<15}{row.found}{mend}"
