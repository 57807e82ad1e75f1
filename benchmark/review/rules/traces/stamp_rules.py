"""Time stamps that no clock of a machine gives, or of another time (docs/facts/mlperf_review.md 6.6, 6.12)."""

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from benchmark.results.judged import GPT3
from benchmark.review.findings import Deviation, Run
from benchmark.review.published.published_traces import published_traces
from benchmark.review.rules.copy_rules import is_published
from benchmark.review.rules.set_rules import Runs

Array = np.ndarray[Any, np.dtype[np.float64]]

FEWEST_TIMES = 20
COARSEST_MS = 10
"""Of all stamps, or of all intervals between evaluations, the greatest common divisor that calls for a question."""
STRAY_TIMES = 0.1
"""Share of stamps that may stand between two ticks."""
TICKS_MS = (1000, 500, 100, 50, 10)
NEAR_TICK = 0.1
"""Share of a tick in which all evaluations end where stamps were rounded and a little added: by chance once in 10^9."""
FEWEST_INTERVALS = 10
FEW_INTERVALS = 3
"""Different ones; published: at least 11 of 25."""
SHORTEST_INTERVAL_MS = 1000
ORDERED = 0.02
"""Median distance of two runs' intervals, each by its median and in the order of their lengths, by their spread;
published: at least 0.032."""
NOISE_MS = 1.5
LEAST_SPREAD = 6
"""Times what rounding moves intervals by, so that their order says anything."""
MEAN = 0.1
"""The same of intervals and the means of two other runs'; published: at least 0.22."""
BEFORE_INIT_MS = 600_000
"""From the first record to init_start; published: at most 110 s."""
YEAR_MS = 365 * 86_400_000
AT_ONCE_MS = 1_000
"""Between the starts of two runs of one system; published: at least 3 s."""


def coarse_clock(run: Run) -> Iterator[Deviation]:
    """Stamps that were rounded, so that no interval is what it was."""
    times = sorted({event.time_ms for event in run.log.events})
    intervals = _intervals(run)
    if len(times) < FEWEST_TIMES or not (run.judged or GPT3).official:
        return
    for tick in TICKS_MS:
        between = sum(1 for time in times if time % tick)
        if between <= STRAY_TIMES * len(times):
            yield _question(run, f"time_ms in whole {tick} ms in {len(times) - between} of {len(times)} stamps")
            return
    tick = math.gcd(*intervals) if len(intervals) >= FEWEST_INTERVALS else 1
    if tick >= COARSEST_MS:
        yield _question(run, f"{len(intervals)} times between evaluations that are multiples of {tick} ms")
        return
    for tick in TICKS_MS[:-1]:
        phases = np.sort([one.time_ms % tick for one in run.evaluations])
        if len(phases) >= FEWEST_INTERVALS and _widest_gap(phases, tick) > tick * (1 - NEAR_TICK):
            yield _question(run, f"all of {len(phases)} evaluations within {NEAR_TICK * tick:g} ms of whole {tick} ms")
            return


def _widest_gap(phases: Array, tick: int) -> float:
    """Between sorted times within one tick, round its end."""
    return float(np.max(np.diff(phases, append=phases[0] + tick)))


def few_intervals(run: Run) -> Iterator[Deviation]:
    intervals = _intervals(run)
    steps = {after - before for before, after in itertools.pairwise(intervals)}
    if len(intervals) < FEWEST_INTERVALS or statistics.median(intervals) < SHORTEST_INTERVAL_MS:
        return
    if len(set(intervals)) <= FEW_INTERVALS:
        yield _question(run, f"{len(intervals)} times between evaluations, of which {len(set(intervals))} differ")
    elif max(steps) - min(steps) <= 1:
        yield _question(run, f"times between evaluations that change by {statistics.median(steps):g} ms each time")


def _question(run: Run, found: str) -> Deviation:
    line = run.evaluations[0].line if run.evaluations else None
    due = "milliseconds of the machine's clock, with its jitter"
    return Deviation(run.log.path, line, found, due, "show the job's own log with its times")


def reordered_intervals(runs: Runs) -> Iterator[Deviation]:
    """The intervals of another run of the system, or of a published one, put into another order."""
    ordered = [_ordered(_intervals(run)) for run in runs]
    for place, (run, mine) in enumerate(zip(runs, ordered, strict=True)):
        if mine is None or not (run.judged or GPT3).official or is_published(run):
            continue
        others = [(other.log.path.name, theirs) for other, theirs in zip(runs[:place], ordered, strict=False)]
        for name, theirs in (*others, *_published()):
            if theirs is not None and _same_lengths(mine, theirs):
                yield _made_up(run, f"the times between evaluations of {name}, in another order")
                break


def mean_intervals(runs: Runs) -> Iterator[Deviation]:
    """Intervals that are the means of those of two other runs of the system."""
    found = [(run, _by_median(_intervals(run))) for run in runs]
    for run, mine in found:
        others = [(other, theirs) for other, theirs in found if other is not run and theirs is not None]
        for (first, left), (second, right) in itertools.combinations(others, 2):
            if mine is None or left is None or right is None:
                continue
            count = min(len(mine), len(left), len(right))
            off = mine[:count] - (left[:count] + right[:count]) / 2
            spread = min(_spread(one[:count]) for one in (mine, left, right))
            noise = NOISE_MS / statistics.median(_intervals(run))
            if spread > LEAST_SPREAD * noise and _spread(off) < MEAN * spread:
                yield _made_up(
                    run, f"times that are the means of those of {first.log.path.name} and {second.log.path.name}"
                )


def _made_up(run: Run, found: str) -> Deviation:
    line = run.evaluations[0].line if run.evaluations else None
    return Deviation(run.log.path, line, found, "times of its own", "show the job's own log with its times")


def before_init(run: Run) -> Iterator[Deviation]:
    """Time that neither the initialisation's limit nor the clock covers."""
    first = run.log.events[0] if run.log.events else None
    if first is not None and run.init_start_ms is not None and run.init_start_ms - first.time_ms > BEFORE_INIT_MS:
        found = f"init_start {(run.init_start_ms - first.time_ms) / 1000:,.0f} s after the first record, {first.key}"
        mend = "log init_start when the job starts: what comes before is in no limit"
        yield Deviation(run.log.path, first.line, found, "init_start with the start of the job", mend)


def before_the_benchmark(run: Run) -> Iterator[Deviation]:
    earliest = min(trace.run_start_ms for trace in published_traces()) - YEAR_MS
    start = run.log.first("run_start")
    if start is not None and 0 < start.time_ms < earliest:
        found = f"time_ms {start.time_ms}, more than a year before the first published run of this benchmark"
        mend = "set the machines' clocks; say when the run was made"
        yield Deviation(run.log.path, start.line, found, "the time of the run", mend)


def same_instant(runs: Runs) -> Iterator[Deviation]:
    timed = sorted((run for run in runs if run.run_start_ms is not None), key=lambda run: run.run_start_ms or 0)
    for before, run in itertools.pairwise(timed):
        apart = (run.run_start_ms or 0) - (before.run_start_ms or 0)
        if apart < AT_ONCE_MS and (run.judged or GPT3).official:
            start = run.log.first("run_start")
            found = f"run_start {apart} ms after that of {before.log.path.name}"
            mend = "say which machines each run had: one system makes one run at a time"
            yield Deviation(run.log.path, None if start is None else start.line, found, "runs of their own", mend)


def _intervals(run: Run) -> list[int]:
    """Between evaluations, without the first, which warms up."""
    return [after.time_ms - before.time_ms for before, after in itertools.pairwise(run.evaluations[:400])]


def _by_median(intervals: Sequence[int]) -> Array | None:
    if len(intervals) < FEWEST_INTERVALS or statistics.median(intervals) < SHORTEST_INTERVAL_MS:
        return None
    return np.array(intervals, dtype=np.float64) / statistics.median(intervals)


def _ordered(intervals: Sequence[int]) -> Array | None:
    """By their lengths; None where rounding to milliseconds is much of their spread."""
    found = _by_median(intervals)
    if found is None or _spread(found) < LEAST_SPREAD * NOISE_MS / statistics.median(intervals):
        return None
    return np.sort(found)


def _spread(numbers: Array) -> float:
    return float(np.median(np.abs(numbers - np.median(numbers))))


def _same_lengths(mine: Array, theirs: Array) -> bool:
    """Also where one of them has one more, whichever."""
    longer, shorter = (mine, theirs) if len(mine) > len(theirs) else (theirs, mine)
    if len(longer) - len(shorter) > 1:
        return False
    limit = ORDERED * min(_spread(mine), _spread(theirs))
    count = len(longer)
    each = ~np.eye(count, dtype=bool) if count > len(shorter) else np.ones((1, count), dtype=bool)
    left_out = np.broadcast_to(longer, each.shape)[each].reshape(len(each), -1)  # a row for each that is left out
    scaled = left_out / np.median(left_out, axis=1, keepdims=True) * np.median(shorter)
    return bool(np.any(np.median(np.abs(scaled - shorter), axis=1) < limit))


@lru_cache(maxsize=1)
def _published() -> tuple[tuple[str, Array | None], ...]:
    return tuple((f"the published {run.name}", _ordered(run.intervals_ms[1:])) for run in published_traces())
