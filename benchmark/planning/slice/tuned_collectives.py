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

from benchmark.config.system_config import Collectives
from benchmark.planning.slice.rank_measurement import (
    SlicePlan,
    read_measurements,
    run_rank,
    slowest_steps,
)
from benchmark.training.machine.forked_ranks import run_ranks
from model.decoder_sizes import CopyEngines

NCCL_CTAS = (None, 8, 16, 32)
CTAS_WITHOUT_NVLS = (None, 16)
LIMIT_S = 120.0
"""Seconds for one way; a longer one hangs."""


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
    """Return the combinations, the usual one first and last: multiprocessors with priority, with copy engines that
    leave NCCL some messages, and without NVLS; each other choice alone."""
    combinations = []
    for copy_engines in get_args(CopyEngines):
        of_nccl = itertools.product(NCCL_CTAS, (False, True)) if copy_engines != "all" else [(None, False)]
        combinations += [Collectives(ctas, priority, copy_engines) for ctas, priority in of_nccl]
    combinations += [Collectives(ctas, nccl_nvls=False) for ctas in CTAS_WITHOUT_NVLS]
    return [*combinations, Collectives(nccl_launch_order=True), Collectives()]


def timed_ways(plan: SlicePlan, output: Path) -> Iterator[TimedCollectives]:
    """Time the steps of the slice in every way. ``output``: folder for temporary files."""
    for collectives in ways():
        system = dataclasses.replace(plan.system, collectives=collectives)
        with tempfile.TemporaryDirectory(dir=output) as folder:
            yield _timed(dataclasses.replace(plan, system=system), Path(folder))


def _timed(plan: SlicePlan, folder: Path) -> TimedCollectives:
    processes, log, collectives = plan.system.num_devices, folder / "log.txt", plan.system.collectives
    run_ranks(
        partial(run_rank, only_steps=True),
        [plan, folder, None],
        processes=processes,
        environment={},
        log=log,
        limit_s=LIMIT_S,
    )
    measurements = read_measurements(folder, processes)
    if len(measurements) == processes:
        return TimedCollectives(collectives, statistics.median(slowest_steps(measurements)))
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return TimedCollectives(collectives, None, lines[-1][:300] if lines else "it printed nothing")


def fastest(timings: Sequence[TimedCollectives]) -> Collectives:
    """Return the fastest way, the earliest of several; the usual one if none was timed."""
    times = {timing.step_s: timing.collectives for timing in reversed(timings) if timing.step_s is not None}
    return times[min(times)] if times else Collectives()


def tuning_lines(timings: Sequence[dict[str, Any]], file: str) -> Iterator[str]:
    """Yield the lines about the ways as :meth:`TimedCollectives.as_json` has them; ``file`` has the fastest."""
    successes = [timing for timing in timings if timing["step_s"] is not None]
    if successes:
        best = min(successes, key=lambda timing: timing["step_s"])
        usual = " and ".join(f"{timing['step_s']:.4g} s" for timing in successes if not timing["options"])
        yield (
            f"{len(successes)} ways timed; fastest {best['step_s']:.4g} s a step: {best['options'] or 'the usual one'} "
            f"({file}); the usual one {usual or 'not timed'}"
        )
    for timing in timings:
        if timing["problem"]:
            yield f"NOT timed: {timing['options'] or 'the usual one'}: {timing['problem']}"
