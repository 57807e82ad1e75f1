"""Time a slice's step with each way of sending messages between tensor-parallel GPUs, and choose the fastest.

Each way has processes of its own: communicators, and the library of the products, are chosen when a process starts, and
a way that fails or hangs costs no other. The usual way is timed first and last: two readings that differ as much as two
ways do say that the difference is noise.
"""

import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import Collectives
from benchmark.planning.slice.rank_measurement import read_measurements, run_rank, slowest_steps
from benchmark.training.engine.forked_ranks import run_ranks
from model.decoder_sizes import CopyEngines

NCCL_CTAS = (None, 4, 8)
LIMIT_S = 120.0
"""Seconds for one way; what takes longer hangs."""


@dataclass(frozen=True)
class TimedCollectives:
    """One way and its time."""

    collectives: Collectives
    step_s: float | None
    """Median of the steps, the slowest process's of each; None if the steps did not run."""
    problem: str = ""
    """Last line of the processes, if the steps did not run."""

    def as_json(self) -> dict[str, Any]:
        return {"options": self.collectives.words, "step_s": self.step_s, "problem": self.problem}


def ways() -> list[Collectives]:
    """Return all combinations, the usual one first and last. NCCL's options are combined only with copy engines that
    leave it some messages."""
    found = []
    for copy_engines in get_args(CopyEngines):
        of_nccl = itertools.product(NCCL_CTAS, (False, True)) if copy_engines != "all" else [(None, False)]
        found += [Collectives(ctas, priority, copy_engines) for ctas, priority in of_nccl]
    return [*found, Collectives()]


def timed_ways(config: RunConfig, steps: int, output: Path) -> Iterator[TimedCollectives]:
    """Time the steps of the slice ``config`` in every way. ``output``: folder for what is needed meanwhile."""
    for collectives in ways():
        system = dataclasses.replace(config.system, collectives=collectives)
        with tempfile.TemporaryDirectory(dir=output) as folder:
            yield _timed(dataclasses.replace(config, system=system), steps, Path(folder))


def _timed(config: RunConfig, steps: int, folder: Path) -> TimedCollectives:
    processes, log = config.system.num_devices, folder / "log.txt"
    run_ranks(
        partial(run_rank, only_steps=True),
        [config, steps, folder, None],
        processes=processes,
        environment={},
        log=log,
        limit_s=LIMIT_S,
    )
    measured = read_measurements(folder, processes)
    if len(measured) == processes:
        return TimedCollectives(config.system.collectives, statistics.median(slowest_steps(measured)))
    said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return TimedCollectives(config.system.collectives, None, said[-1][:300] if said else "it said nothing")


def fastest(timed: Sequence[TimedCollectives]) -> Collectives:
    """Return the fastest way, the earliest of several; the usual one if none was timed."""
    times = {one.step_s: one.collectives for one in reversed(timed) if one.step_s is not None}
    return times[min(times)] if times else Collectives()


def told(timed: Sequence[dict[str, Any]], file: str) -> Iterator[str]:
    """Yield the lines about the ways that :meth:`TimedCollectives.as_json` wrote down; ``file`` has the fastest."""
    in_time = [one for one in timed if one["step_s"] is not None]
    if in_time:
        best = min(in_time, key=lambda one: one["step_s"])
        usual = " and ".join(f"{one['step_s']:.4g} s" for one in in_time if not one["options"])
        yield (
            f"{len(in_time)} ways timed; fastest {best['step_s']:.4g} s a step: {best['options'] or 'the usual one'} "
            f"({file}); the usual one {usual or 'not timed'}"
        )
    yield from (f"NOT timed: {one['options'] or 'the usual one'}: {one['problem']}" for one in timed if one["problem"])
