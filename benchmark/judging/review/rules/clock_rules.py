"""Check the order and times of events: initialisation, start, stop. ``speed_rules.py`` checks the time of blocks,
restarts and stalls.

Sources: docs/facts/mlperf_review.md 3.3, 3.9, 6.6, 6.12, 7.1, 7.3, 7.4.
"""

import itertools
import time
from collections.abc import Iterator

from benchmark.judging.results.run_summary import BACKWARDS_MS, TimedBlock
from benchmark.judging.review.findings import Deviation, Run, at

INIT_LIMIT_S = {"closed": 30 * 60, "open": 240 * 60}
"""Seconds of initialisation, by division; a run must take strictly less. The rules' text of round 3.0 says 60 min for
gpt3, but every checker enforces 30."""
UNTIMED_GAP_MS = 1000
"""Longest gap from init_stop to run_start in milliseconds; published runs have at most 47."""
BEFORE_INIT_MS = 600_000
"""Longest time from the first record to init_start in milliseconds; published runs have at most 110 s."""
EARLIEST_MS = 1_514_764_800_000
LATER_MS = 86_400_000
"""Limits of a record's time: ``EARLIEST_MS`` is 2018-01-01, before MLPerf; ``LATER_MS`` allows a day after now, since
clocks of the world differ."""


def order(run: Run) -> Iterator[Deviation]:
    """Check that init_start, init_stop, run_start, blocks and evaluations, and run_stop stand in this order in the
    file, that the clock counts milliseconds since 1970, and that the run takes time."""
    log, latest_ms = run.log, time.time() * 1000 + LATER_MS
    odd = next((event for event in log.events if not EARLIEST_MS <= event.time_ms <= latest_ms), None)
    if odd is not None:
        yield at(run, odd, f"time_ms {odd.time_ms}", "milliseconds since 1970, between 2018 and today")
    start, stop = log.first("run_start"), log.first("run_stop")
    events = [event for event in (log.first("init_start"), log.first("init_stop"), start, stop) if event is not None]
    for earlier, later in itertools.pairwise(events):
        if later.line < earlier.line:
            expected = f"{earlier.key} (line {earlier.line}), then {later.key}"
            yield at(run, later, f"{later.key} before {earlier.key}", expected)
    if run.run_ms is not None and run.run_ms <= 0 and not run.steps_back:
        yield at(run, stop, f"run_stop {run.run_ms} ms after run_start", "a run that takes time")
    init_stop = log.first("init_stop")
    late = next((event for event in log.all("init_start") if init_stop and event.line > init_stop.line), None)
    if late is not None and late.line != events[0].line:
        yield at(run, late, "init_start after init_stop", f"before it (line {init_stop.line if init_stop else 0})")
    for key in ("block_start", "epoch_start", "eval_start", "eval_accuracy"):
        event = log.first(key)
        if start is not None and event is not None and event.line < start.line:
            yield at(run, event, f"{key} before run_start", f"run_start first (line {start.line})")


def backwards(run: Run) -> Iterator[Deviation]:
    """Ask once about time that runs backwards in the initialisation or the run; a restart may be on a node with another
    clock."""
    milestones = [event for event in map(run.log.first, ("init_start", "init_stop", "run_start")) if event is not None]
    early = [pair for pair in itertools.pairwise(milestones) if pair[0].line < pair[1].line]
    early = [pair for pair in early if pair[0].time_ms - pair[1].time_ms > BACKWARDS_MS]
    reversals = (*early, *run.steps_back)
    for previous, event in reversals[:1]:
        difference = _seconds(previous.time_ms - event.time_ms)
        more = f", and {len(reversals) - 1} more times" if len(reversals) > 1 else ""
        observed = f"{event.key} is {difference} earlier than {previous.key} in line {previous.line}{more}"
        yield at(run, event, observed, "times that do not go backwards")


def steady_blocks(run: Run) -> list[TimedBlock]:
    """Return the blocks in which the clock was not set back; the lengths of others say nothing."""
    lines = [event.line for _, event in run.steps_back]
    ends = [0, *(block.line for block in run.blocks)]
    return [
        block
        for start, block in zip(ends, run.blocks, strict=False)
        if not any(start < line <= block.line for line in lines)
    ]


def init_time(run: Run) -> Iterator[Deviation]:
    event, limit = run.log.first("init_stop"), INIT_LIMIT_S.get(run.division or "", INIT_LIMIT_S["closed"])
    if event is None or run.init_s is None:
        return
    observed = f"init_stop {run.init_s:,.1f} s after the first init_start"
    if run.init_s >= limit:
        yield at(run, event, observed, f"less than {limit} s")
    elif -BACKWARDS_MS / 1000 <= run.init_s < run.rules.limits.shortest_init_s:
        yield at(run, event, observed, f"at least {run.rules.limits.shortest_init_s:g} s", "short")


def untimed(run: Run) -> Iterator[Deviation]:
    """Check for time that belongs neither to the initialisation nor to the run."""
    first, stop, start = run.log.first("init_start"), run.log.first("init_stop"), run.log.first("run_start")
    if stop is not None and start is not None and start.time_ms - stop.time_ms > UNTIMED_GAP_MS:
        observed = f"{_seconds(start.time_ms - stop.time_ms)} between init_stop and run_start"
        yield at(run, start, observed, "run_start at once after init_stop")
    earlier = [event.time_ms for event in run.log.events if first is not None and event.line < first.line]
    if first is not None and first.time_ms - min(earlier, default=first.time_ms) > BEFORE_INIT_MS:
        observed = f"init_start {_seconds(first.time_ms - min(earlier))} after the first record"
        yield at(run, first, observed, "init_start where the first process begins")


def cache_clear(run: Run) -> Iterator[Deviation]:
    """Check that caches are cleared before the clock starts. A restart may clear them again; a rehearsal need not clear
    them."""
    start, events = run.log.first("run_start"), run.log.all("cache_clear")
    if not run.rules.official or start is None or not events:
        return
    early = [event for event in events if event.line < start.line]
    if not early:
        yield at(run, events[0], "cache_clear after run_start", f"before it (line {start.line})")
    for event in early:
        if event.value not in (True, None):
            yield at(run, event, f"cache_clear {event.value!r:.40}", "true", run.rules.name)
            return


def stopped_before_target(run: Run) -> Iterator[Deviation]:
    """Check that run_stop follows the evaluation that met the target, and ask about evaluations in between: a run that
    trains on counts more tokens than it needed."""
    stop, reached = run.log.first("run_stop"), run.reached
    if stop is None or reached is None:
        return
    if stop.line < reached.line:
        expected = f"run_stop after it (line {reached.line})"
        yield at(run, stop, "run_stop before the evaluation that met the target", expected)
    later = [
        evaluation
        for evaluation in run.evaluations
        if reached.line < evaluation.line < stop.line and evaluation.tokens != reached.tokens
    ]
    if later:
        observed = f"{len(later)} more evaluation{'s' if len(later) > 1 else ''} after the target was met"
        expected = f"run_stop after line {reached.line}"
        yield at(run, later[0], observed, expected, "later evaluations")


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:,.3f} s" if milliseconds < 10_000 else f"{milliseconds / 1000:,.0f} s"
