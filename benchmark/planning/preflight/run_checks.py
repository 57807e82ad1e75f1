"""Run all checks: ``python -m benchmark preflight``."""

import contextlib
import datetime
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_type_hints

import torch

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.planning.preflight.device_checks import DEVICE_CHECKS
from benchmark.planning.preflight.machine_checks import MACHINE_CHECKS
from benchmark.planning.preflight.preflight_check import (
    GPU,
    RUN,
    WORLD,
    CheckingProcess,
    CheckResult,
    Measurements,
    PreflightCheck,
    worst,
)
from benchmark.planning.preflight.world_checks import WORLD_CHECKS
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.rank_messages import all_messages
from benchmark.training.training_world import training_world
from foundation.errors import InputError
from foundation.plain_text import folded

PATIENCE = datetime.timedelta(minutes=5)
"""Time allowed for all processes to come, and for any message."""
CHECKS = (*MACHINE_CHECKS, *DEVICE_CHECKS, *WORLD_CHECKS)


def run_checks(config: RunConfig | None, *, as_json: bool) -> int:
    """Run every check and print a line for each; return 0 if none failed. All processes must call it.

    Raises InputError when the processes cannot meet.
    """
    with _checking_process(config) as process:
        rows = []
        for check in CHECKS:
            row = row_of(check, process)
            if row is not None:
                rows.append(row)
                if not as_json:
                    mend = f"; mend: {row['mend']}" if row["mend"] else ""
                    print(folded(f"{row['outcome']:<9}{row['name']:<15}{row['found']}{mend}"), flush=True)
        failed = any(row["outcome"] == "FAILED" for row in rows)
        if process.environment.rank == 0 and as_json:
            print(json.dumps({"passed": not failed, "checks": rows}))
        elif process.environment.rank == 0:
            counts = Counter(row["outcome"] for row in rows)
            print("preflight: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
        return int(failed) if process.world is None else process.world.from_rank_0(int(failed))


@contextlib.contextmanager
def _checking_process(config: RunConfig | None) -> Iterator[CheckingProcess]:
    environment = read_environment()
    kind = config.system.device if config else "cuda" if torch.cuda.is_available() else "cpu"
    if environment.world_size == 1:
        yield CheckingProcess(config, environment, None, kind)
        return
    count = environment.world_size
    started = System(name="as started", device=kind, nodes=1, devices_per_node=count, micro_batch_size=1)
    system, deterministic = (config.system, config.deterministic) if config else (started, False)
    with training_world(system, environment, deterministic=deterministic, timeout=PATIENCE) as world:
        yield CheckingProcess(config, environment, world, kind)


def row_of(check: PreflightCheck, process: CheckingProcess) -> dict[str, Any] | None:
    """Run a check; return its line of the result on rank 0, None elsewhere. All processes must call it."""
    started = time.perf_counter()
    result = _inapplicable(check, process)
    if result is None:
        measurements = _measured(check, process)
        results = [(name, result) for name, result in measurements if isinstance(result, CheckResult)]
        if process.environment.rank == 0:
            result = worst(process, results) if results else check.judge(process, measurements)
    if result is None or process.environment.rank != 0:
        return None
    return {
        "name": check.name,
        "protects_from": check.protects_from,
        "outcome": result.outcome,
        "found": result.text,
        "mend": result.mend,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _inapplicable(check: PreflightCheck, process: CheckingProcess) -> CheckResult | None:
    """Return the reason why there is nothing to measure; all processes return the same."""
    if check.needs >= RUN and process.config is None:
        return CheckResult("skipped", "no benchmark was named")
    if check.needs >= WORLD and process.world is None:
        return CheckResult("skipped", "one process; start one per device with srun or torchrun")
    if check.needs >= GPU and process.kind == "cpu":
        return CheckResult("skipped", "the system has no GPU")
    return None


def _measured(check: PreflightCheck, process: CheckingProcess) -> Measurements:
    """Return the measurements of the processes that took part; all processes return the same."""
    rank, local_rank = process.environment.rank, process.environment.local_rank
    measured_type: Any = get_type_hints(check.measure)["return"]
    result: CheckResult | None = None
    measured: Any = None
    takes_part = {"job": rank == 0, "node": local_rank == 0, "process": True}[check.where]
    if takes_part:
        try:
            measured = check.measure(process)
        except Exception as error:  # a node where a check cannot run has not passed it
            text = " ".join(str(error).split())
            if isinstance(error, InputError):  # it says how to mend it
                result = CheckResult("FAILED", text)
            else:
                result = CheckResult("FAILED", f"{type(error).__name__}: {text}", "look up the error")
    if process.world is None:
        return [(process.name, result or measured)] if takes_part else []
    message = (process.name, result, measured) if takes_part else None
    row: Any = tuple.__class_getitem__((str, CheckResult | None, measured_type | None))
    messages = all_messages(message, row | None)
    return [(name, result or measured) for name, result, measured in filter(None, messages)]
