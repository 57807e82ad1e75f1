"""What a run that failed several times could expect at the rate of its own failures."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmark.goodput.expected_goodput import FailingRun, expected_goodput
from benchmark.goodput.time_kinds import Kind
from benchmark.goodput.wall_time import DatedEvent

FEWEST_FAILURES = 3
"""Of fewer nothing follows: three tell the rate within a factor of two."""


@dataclass(frozen=True)
class Expectation:
    """Means of a run, and the goodput that follows from them."""

    failures: int
    run: FailingRun

    @property
    def goodput(self) -> float:
        """Without the queue."""
        return expected_goodput(self.run)


def expectation(
    by_kind: Mapping[Kind, int], events: Sequence[DatedEvent], *, restarts_ms: Sequence[int]
) -> Expectation | None:
    """``restarts_ms``: for each attempt that failed and was followed by another, the time from the failure until the
    next was ready. None where these are too few, or where the run saved no two checkpoints whose distance is known."""
    failures = len(restarts_ms)
    steps_ms = [done.span.ms for done in events if done.event.key == "step" and done.span is not None]
    saves = [done for done in events if done.event.key == "checkpoint"]
    distance = _steps_between(saves)
    if failures < FEWEST_FAILURES or not steps_ms or distance is None:
        return None
    run = FailingRun(
        step_s=statistics.fmean(steps_ms) / 1000,
        mtbf_s=(sum(by_kind.values()) - by_kind["queue"]) / failures / 1000,
        save_steps=distance,
        pause_s=by_kind["checkpoint"] / len(saves) / 1000,
        restart_s=statistics.fmean(restarts_ms) / 1000,
        write_s=_mean_write_s(events),
        other_s=(by_kind["evaluation"] + by_kind["audit"] + by_kind["other"]) / len(steps_ms) / 1000,
    )
    return Expectation(failures, run)


def _steps_between(saves: Sequence[DatedEvent]) -> int | None:
    """The usual distance between two checkpoints of one attempt."""
    found = []
    for before, after in itertools.pairwise(saves):
        first, second = before.event.number("steps"), after.event.number("steps")
        if first is not None and second is not None and before.attempt == after.attempt and 0 < second - first < 1e9:
            found.append(round(second - first))
    return max(1, statistics.median_low(found)) if found else None


def _mean_write_s(events: Sequence[DatedEvent]) -> float:
    found = [done.event.number("seconds") for done in events if done.event.key == "checkpoint_written"]
    known = [seconds for seconds in found if seconds is not None and 0 <= seconds < 1e9 and math.isfinite(seconds)]
    return statistics.fmean(known) if known else 0.0
