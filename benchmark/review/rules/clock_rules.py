"""Order and times of events: the clock, the initialisation, restarts.

Sources: docs/facts/mlperf_review.md 3.3, 3.9, 6.6, 7.3, 7.4.
"""

import bisect
import itertools
import time
from collections.abc import Iterator

from benchmark.results.judged import GPT3
from benchmark.results.result_log import LogEvent
from benchmark.review.findings import Deviation, Run, at

INIT_LIMIT_S = {"closed": 30 * 60, "open": 240 * 60}
"""Strictly less. The rules' text of round 3.0 says 60 min for gpt3, but every checker enforces 30."""
FROM_MANY_RANKS = ("cache_clear", "init_start")
"""Logged by every node or rank, so their times interleave: published logs step back by up to 3 s there."""
BACKWARDS_MS = 1000
SHORTEST_INIT_S = 10
UNTIMED_GAP_MS = (100, 10_000)
"""init_stop to run_start: more than the first is worth a question (published: at most 47 ms), the second an error."""
SLOW_BLOCK = 2.0
"""Between two evaluations, relative to the median: published blocks stay below 1.9."""
SLOW_BLOCK_MS = 1000
"""A block is slow where it is longer by SLOW_BLOCK and by at least this, in milliseconds."""
SLOW_STOP_MS = 10_000
"""From the passing evaluation to run_stop; published: at most 1.6 s."""
EARLIEST_MS = 1_514_764_800_000
LATER_MS = 86_400_000
"""2018-01-01, before MLPerf; a day after now, since clocks of the world differ."""


def order(run: Run) -> Iterator[Deviation]:
    """init_start, init_stop, run_start, blocks and evaluations, run_stop, in the file and on the clock."""
    log = run.log
    chain = [log.last("init_start"), log.first("init_stop"), log.first("run_start"), log.first("run_stop")]
    events = [event for event in chain if event is not None]
    for earlier, later in itertools.pairwise(events):
        if later.line < earlier.line:
            yield at(run, later, f"{later.key} before {earlier.key}", _order(earlier, later), "log events in order")
        elif later.time_ms < earlier.time_ms:
            found = f"{later.key} {_seconds(earlier.time_ms - later.time_ms)} before {earlier.key} on the clock"
            if not (earlier.key == "init_start" and later.time_ms >= log.all("init_start")[0].time_ms):
                mend = "take all times from one clock"
                yield at(run, later, found, _order(earlier, later), mend)
    start = log.first("run_start")
    for key in ("block_start", "epoch_start", "eval_start", "eval_accuracy"):
        event = log.first(key)
        if start is not None and event is not None and event.line < start.line:
            mend = "start the clock before anything is trained or evaluated"
            yield at(run, event, f"{key} before run_start", f"run_start first (line {start.line})", mend)


def evaluated_after_stop(run: Run) -> Iterator[Deviation]:
    stop = run.log.first("run_stop")
    for event in run.log.all("eval_accuracy"):
        if stop is not None and event.line > stop.line:
            found, mend = "eval_accuracy after run_stop", "log run_stop after the evaluation that meets the target"
            yield at(run, event, found, f"run_stop last (line {stop.line})", mend)


def plausible_times(run: Run) -> Iterator[Deviation]:
    latest_ms = time.time() * 1000 + LATER_MS
    for event in run.log.events:
        if not EARLIEST_MS <= event.time_ms <= latest_ms:
            due = "milliseconds since 1970, between 2018 and today"
            yield at(run, event, f"time_ms {event.time_ms}", due, "log milliseconds of the system's clock")
            return


def backwards_in_run(run: Run) -> Iterator[Deviation]:
    """Between run_start and run_stop one process logs, so time never goes back there."""
    for before, event, timed in _steps_back(run):
        if timed:
            yield _stepped_back(run, before, event)


def backwards_elsewhere(run: Run) -> Iterator[Deviation]:
    for before, event, timed in _steps_back(run):
        if not timed:
            yield _stepped_back(run, before, event)


def _steps_back(run: Run) -> Iterator[tuple[LogEvent, LogEvent, bool]]:
    start, stop = run.log.first("run_start"), run.log.first("run_stop")
    before: LogEvent | None = None
    for event in run.log.events:
        if event.key in FROM_MANY_RANKS:
            continue
        if before is not None and before.time_ms - event.time_ms > BACKWARDS_MS:
            timed = start is not None and event.line >= start.line and (stop is None or event.line <= stop.line)
            yield before, event, timed
        before = event


def _stepped_back(run: Run, before: LogEvent, event: LogEvent) -> Deviation:
    found = f"{event.key} is {_seconds(before.time_ms - event.time_ms)} earlier than {before.key} in line {before.line}"
    mend = "do not edit or reorder a log; keep the clock from being set during a run"
    return at(run, event, found, "times that do not go backwards", mend)


def init_time(run: Run) -> Iterator[Deviation]:
    event, limit = run.log.first("init_stop"), INIT_LIMIT_S.get(run.division or "", INIT_LIMIT_S["closed"])
    if event is None or run.init_s is None:
        return
    if run.init_s >= limit:
        mend = "shorten the initialisation, or start the clock when the limit is reached"
        yield at(run, event, f"init_stop {run.init_s:.0f} s after the first init_start", f"less than {limit} s", mend)


def _untimed_gap(run: Run) -> tuple[LogEvent, int] | None:
    stop, start = run.log.first("init_stop"), run.log.first("run_start")
    return None if stop is None or start is None else (start, start.time_ms - stop.time_ms)


def short_gap(run: Run) -> Iterator[Deviation]:
    gap = _untimed_gap(run)
    if gap is not None and UNTIMED_GAP_MS[0] < gap[1] <= UNTIMED_GAP_MS[1]:
        yield _gap(run, *gap)


def long_gap(run: Run) -> Iterator[Deviation]:
    gap = _untimed_gap(run)
    if gap is not None and gap[1] > UNTIMED_GAP_MS[1]:
        yield _gap(run, *gap)


def _gap(run: Run, start: LogEvent, milliseconds: int) -> Deviation:
    found, due = f"{_seconds(milliseconds)} between init_stop and run_start", "back to back"
    return at(run, start, found, due, "let run_start follow init_stop at once: nothing is free of time between them")


def short_init(run: Run) -> Iterator[Deviation]:
    """2 TB of checkpoint and thousands of processes: published runs take 119 s and more."""
    event = run.log.first("init_stop")
    if event is not None and run.init_s is not None and run.init_s < SHORTEST_INIT_S and (run.judged or GPT3).official:
        found, due = f"init_stop {run.init_s:.1f} s after the first init_start", f"at least {SHORTEST_INIT_S} s"
        yield at(run, event, found, due, "log init_start where the first process begins, before anything is loaded")


def cache_clear(run: Run) -> Iterator[Deviation]:
    """Caches are cleared, and before the clock starts; a rehearsal, which is no result, may leave them."""
    start = run.log.first("run_start")
    for event in run.log.all("cache_clear"):
        mend = "clear the caches of every node before the run, and log it then"
        if event.value not in (True, None):
            if not (run.judged or GPT3).official:
                continue
            yield at(run, event, f"cache_clear {event.value!r:.40}", "true", mend)
        elif start is not None and (event.line > start.line or event.time_ms > start.time_ms):
            yield at(run, event, "cache_clear after run_start", f"before it (line {start.line})", mend)


def no_time(run: Run) -> Iterator[Deviation]:
    stop = run.log.first("run_stop")
    if stop is not None and run.run_ms is not None and run.run_ms <= 0:
        found = f"run_stop {_seconds(-run.run_ms)} before run_start on the clock"
        yield at(run, stop, found, "after it", "take both times from one clock")


def slow_blocks(run: Run) -> Iterator[Deviation]:
    """A pause, a stall, or a restart nobody logged. The first block warms up, and restarts are told elsewhere."""
    times = [(evaluation.line, evaluation.time_ms) for evaluation in run.evaluations]
    blocks = [(line, before, now, now - before) for (_, before), (line, now) in itertools.pairwise(times)]
    if len(blocks) < 3:
        return
    median = sorted(length for *_, length in blocks)[len(blocks) // 2]
    resumed = sorted(restart.time_ms for restart in run.restarts)
    for line, before, now, length in blocks:
        restarted = bisect.bisect_left(resumed, before) < bisect.bisect_right(resumed, now)
        if length > max(SLOW_BLOCK * median, median + SLOW_BLOCK_MS) and not restarted:
            found = f"{_seconds(length)} since the evaluation before, {length / max(1, median):.1f} times the median"
            mend = "say what happened: the clock must not be paused, and a restart is to be logged"
            yield Deviation(run.log.path, line, found, f"about {_seconds(median)}", mend)


def slow_stop(run: Run) -> Iterator[Deviation]:
    stop, reached = run.log.first("run_stop"), run.reached
    if stop is None or reached is None or stop.line < reached.line:
        return
    gap = stop.time_ms - reached.time_ms
    if gap > SLOW_STOP_MS and run.evaluations[-1].line == reached.line:
        found = f"run_stop {_seconds(gap)} after the evaluation that met the target"
        yield at(run, stop, found, "at once", "log run_stop as soon as the target is known to be met")


def restarts(run: Run) -> Iterator[Deviation]:
    """A continued run: one init_start … run_stop, the clock running on; its losses count."""
    for restart in run.restarts:
        tokens = "" if restart.tokens is None else f" at {restart.tokens:,.0f} tokens"
        found = f"restart {restart.number}{tokens}; the time it lost is in the score"
        mend = "nothing to mend: be ready to show that the same data went on"
        yield Deviation(run.log.path, restart.line, found, "a run without interruption, or the restart logged", mend)


def restart_tokens(run: Run) -> Iterator[Deviation]:
    trained = [(one.line, one.tokens) for one in run.evaluations if one.tokens is not None]
    lines = [line for line, _ in trained]
    for restart in run.restarts:
        before = bisect.bisect_left(lines, restart.line)
        if restart.tokens is not None and before and restart.tokens < trained[before - 1][1]:
            found = f"restart at {restart.tokens:,.0f} tokens, after an evaluation at {trained[before - 1][1]:,.0f}"
            mend = "cut the log back to the checkpoint the run goes on from"
            yield Deviation(run.log.path, restart.line, found, "tokens that do not go back", mend)


def _order(earlier: LogEvent, later: LogEvent) -> str:
    return f"{earlier.key} (line {earlier.line}), then {later.key}"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:,.3f} s" if milliseconds < 10_000 else f"{milliseconds / 1000:,.0f} s"
