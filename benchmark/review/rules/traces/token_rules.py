"""Blocks and evaluations: one token counter, one after the other, and none after the run (docs/facts/mlperf_review.md
3.4, 3.9, 6.12)."""

from collections.abc import Iterator

from benchmark.results.judged import GPT3
from benchmark.results.result_log import as_number
from benchmark.review.findings import Deviation, Run, at

MORE_MS = 1_000
ONE_COUNTER = "count tokens in one place, and log them as they are at each event"
ORDER = "log events in the order in which they happen"


def block_stops(run: Run) -> Iterator[Deviation]:
    """first_epoch_num of block_stop is that of its block: one block further each time, if there are several."""
    judged, size = run.judged or GPT3, run.global_batch_size
    stops = run.log.all("block_stop")
    if size is None or run.restarts:
        return
    interval = judged.tokens_per_evaluation(size)
    if 1 < len(stops) < len(run.evaluations):
        found = f"{len(stops)} block_stop for {len(run.evaluations)} evaluations"
        yield at(run, stops[-1], found, "one before each evaluation, or one for the whole run", ORDER)
    before: float | None = None
    for event in stops:
        tokens = as_number(event.metadata.get("first_epoch_num"))
        if tokens is None:
            continue
        if tokens % interval or (before is not None and tokens <= before):
            found = f"block_stop with first_epoch_num {tokens:,.0f}"
            due = "a multiple of the block's tokens" if tokens % interval else f"more than {before or 0:,.0f}"
            yield at(run, event, found, due, ONE_COUNTER)
            return
        before = tokens


def block_starts(run: Run) -> Iterator[Deviation]:
    """first_epoch_num 0 again and again: published blocks may come out of order, but each has its own tokens."""
    starts = [as_number(event.metadata.get("first_epoch_num")) for event in run.log.all("block_start")]
    if len(starts) > 2 and len({one for one in starts if one is not None}) == 1 and not run.restarts:
        found = f"{len(starts)} block_start, each with first_epoch_num {starts[0] or 0:,.0f}"
        yield at(run, run.log.all("block_start")[1], found, "the tokens at the start of each", ONE_COUNTER)


def evaluation_tokens(run: Run) -> Iterator[Deviation]:
    """eval_start, eval_accuracy and eval_stop of one evaluation say the same."""
    started: float | None = None
    for event in run.log.events:
        if event.key == "eval_start":
            started = event.tokens
        elif event.key == "eval_accuracy" and None not in (started, event.tokens) and started != event.tokens:
            found = f"eval_accuracy at {event.tokens or 0:,.0f} tokens, its eval_start at {started or 0:,.0f}"
            yield at(run, event, found, "one number of tokens", ONE_COUNTER)
            return
        elif event.key == "eval_stop":
            started = None


def trained_while_evaluating(run: Run) -> Iterator[Deviation]:
    """A block that begins before the evaluation ends: the clock of one of them is wrong, or the weights are others."""
    inside = False
    for event in run.log.events:
        if event.key in ("eval_start", "eval_stop"):
            inside = event.key == "eval_start"
        elif event.key == "block_start" and inside:
            mend = "say with which weights it was evaluated, and on which devices"
            yield at(run, event, "block_start between eval_start and eval_stop", "eval_stop first", mend)
            return


def trained_after_stop(run: Run) -> Iterator[Deviation]:
    stop = run.log.first("run_stop")
    for event in run.log.events if stop is not None else ():
        later = stop is not None and event.line > stop.line and event.time_ms > stop.time_ms + MORE_MS
        if later and event.key in ("block_start", "eval_start", "tracked_stats"):
            found = f"{event.key} after run_stop"
            yield at(run, event, found, "nothing trained or evaluated after it", "say what went on after the run")
            return
