"""What a check is: each process measures, rank 0 judges."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import Environment, World
from stage.errors import InputError

Outcome = Literal["ok", "skipped", "warning", "FAILED"]
SEVERITY: tuple[Outcome, ...] = ("ok", "skipped", "warning", "FAILED")
Need = Literal["run", "world", "gpu"]
"""Of a check: a benchmark's run, several processes, a system with GPUs."""
RUN: frozenset[Need] = frozenset({"run"})
WORLD: frozenset[Need] = frozenset({"world"})
GPU: frozenset[Need] = frozenset({"gpu"})
NAMED = 3
"""Processes that are named in one line; of the others the number."""


@dataclass(frozen=True)
class CheckResult:
    """What a check found, and how to mend it."""

    outcome: Outcome
    found: str
    mend: str = ""


@dataclass(frozen=True)
class Place:
    """Where a process stands, and what it is to check for."""

    config: RunConfig | None
    """None: the machine as such."""
    environment: Environment
    world: World | None
    """None for a process that is alone; it then checks all devices of its machine."""
    kind: Literal["cuda", "cpu"]

    @property
    def name(self) -> str:
        return f"{socket.gethostname()} rank {self.environment.rank}"

    @property
    def devices(self) -> list[torch.device]:
        """This process's own, or all it sees where it is alone. Raises InputError where there is none."""
        if self.kind == "cpu":
            return [torch.device("cpu")]
        if self.world is not None:
            return [self.world.device]
        if not torch.cuda.device_count():
            raise InputError("no GPU is here: mend the driver, or choose a CPU system such as --system cpu_p1")
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]

    @property
    def run(self) -> RunConfig:
        """The configuration, for checks that need one."""
        assert self.config is not None
        return self.config

    @property
    def together(self) -> World:
        """All processes, for checks that need several."""
        assert self.world is not None
        return self.world


Measured = Sequence[tuple[str, Any]]
"""What each process that took part measured, by its name, in the order of ranks."""


def worst(_: Place, measured: Measured) -> CheckResult:
    """Return the worst of several findings, with the names of those who made it where others made another."""
    findings: list[tuple[str, CheckResult]] = list(measured)
    outcome = max((finding.outcome for _, finding in findings), key=SEVERITY.index)
    bad = [(name, finding) for name, finding in findings if finding.outcome == outcome]
    first = bad[0][1]
    if len({finding.found for _, finding in findings}) == 1:
        return first
    if outcome in ("ok", "skipped"):
        return CheckResult(outcome, f"{first.found} (and {len(findings) - 1} more)")
    said = "; ".join(f"{name}: {finding.found}" for name, finding in bad[:NAMED])
    more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return CheckResult(outcome, said + more, first.mend)


@dataclass(frozen=True)
class PreflightCheck:
    """One row of the table."""

    name: str
    protects_from: str
    where: Literal["job", "node", "process"]
    """Who measures: rank 0, the first process of each machine, or every process."""
    measure: Callable[[Place], Any]
    """A CheckResult, or what ``judge`` reads. What it raises is a failure. It may use the process group if every
    process measures."""
    judge: Callable[[Place, Measured], CheckResult] = worst
    needs: frozenset[Need] = frozenset()
    """The check is skipped where one of these is missing."""
