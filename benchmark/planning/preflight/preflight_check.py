"""Define a check: each process measures, rank 0 judges."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import World
from benchmark.training.engine.rank_environment import Environment
from foundation.errors import InputError

CheckOutcome = Literal["ok", "skipped", "warning", "FAILED"]
SEVERITY: tuple[CheckOutcome, ...] = ("ok", "skipped", "warning", "FAILED")
Need = Literal["run", "world", "gpu"]
"""Conditions that a check may need: a benchmark's run, several processes, a system with GPUs."""
RUN: frozenset[Need] = frozenset({"run"})
WORLD: frozenset[Need] = frozenset({"world"})
GPU: frozenset[Need] = frozenset({"gpu"})
NAMED = 3
"""Number of processes that are named in one line; the rest are counted."""


@dataclass(frozen=True)
class CheckResult:
    """Result of a check, and how to mend the fault."""

    outcome: CheckOutcome
    text: str
    mend: str = ""


@dataclass(frozen=True)
class CheckingProcess:
    """Position of a process among the machines, and the run that it checks for."""

    config: RunConfig | None
    """Configuration of the run; None checks the machine without a run."""
    environment: Environment
    world: World | None
    """None for a process that runs alone and then checks all devices of its machine."""
    kind: Literal["cuda", "cpu"]

    @property
    def name(self) -> str:
        return f"{socket.gethostname()} rank {self.environment.rank}"

    @property
    def devices(self) -> list[torch.device]:
        """Return this process's device, or all devices that it sees if it runs alone. Raises InputError if there is
        none."""
        if self.kind == "cpu":
            return [torch.device("cpu")]
        if self.world is not None:
            return [self.world.device]
        if not torch.cuda.device_count():
            raise InputError("no GPU is here")
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]

    @property
    def run(self) -> RunConfig:
        """Return the configuration, for checks that need one."""
        assert self.config is not None
        return self.config

    @property
    def together(self) -> World:
        """Return the world of all processes, for checks that need several."""
        assert self.world is not None
        return self.world


Measurements = Sequence[tuple[str, Any]]
"""Measurements of the processes that took part, with their names, in the order of ranks."""


def worst(_: CheckingProcess, measurements: Measurements) -> CheckResult:
    """Return the worst of several results; name the processes that made it if the results differ."""
    results: list[tuple[str, CheckResult]] = list(measurements)
    outcome = max((result.outcome for _, result in results), key=SEVERITY.index)
    bad = [(name, result) for name, result in results if result.outcome == outcome]
    first = bad[0][1]
    if len({result.text for _, result in results}) == 1:
        return first
    if outcome in ("ok", "skipped"):
        return CheckResult(outcome, f"{first.text} (and {len(results) - 1} more)")
    text = "; ".join(f"{name}: {result.text}" for name, result in bad[:NAMED])
    remainder = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return CheckResult(outcome, text + remainder, first.mend)


@dataclass(frozen=True)
class PreflightCheck:
    """One row of the table."""

    name: str
    protects_from: str
    where: Literal["job", "node", "process"]
    """Processes that measure: rank 0, the first process of each machine, or every process."""
    measure: Callable[[CheckingProcess], Any]
    """Function that returns a CheckResult, or a value for ``judge``. An exception counts as a failed check. The
    function may use the process group only if every process measures."""
    judge: Callable[[CheckingProcess, Measurements], CheckResult] = worst
    needs: frozenset[Need] = frozenset()
    """Conditions of the check; it is skipped if one is missing."""
