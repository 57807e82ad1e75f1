"""What the runs of one result have in common, and what they must not (docs/facts/mlperf_review.md 4.4, 7.9)."""

import itertools
import statistics
from collections.abc import Iterator, Sequence

from benchmark.results.judged import GPT3
from benchmark.results.printable import shortened
from benchmark.review.findings import Deviation, Run

Runs = Sequence[Run]

RUNS = 3
"""Files that the official package checker wants, exactly."""
NEAR_SEEDS = 2
"""Seeds of a result no farther apart than this from one to the next are called a sequence."""
SPEEDS_APART = 1.06
"""Median times between evaluations of two runs of a result; published: at most 1.034."""
FEWEST_BLOCKS = 5
SHORTEST_BLOCK_MS = 1000
"""Median time between evaluations; of shorter ones milliseconds of a busy host make 6 %. Published: 9 s and more."""
MOST_EVENTS = 1_000
SHOWN = 60
STATISTICS = "tracked_stats"
"""One published result logs them from other lines in one of its runs; all others have every key from one place."""
SAME_SETTINGS = (
    "submission_benchmark",
    "submission_division",
    "global_batch_size",
    "opt_base_learning_rate",
    "opt_end_learning_rate",
    "opt_learning_rate_warmup_steps",
    "opt_learning_rate_decay_steps",
    "init_checkpoint_step",
    "eval_samples",
)
SAME_NAMES = ("submission_org", "submission_platform", "gradient_accumulation_steps")
"""One published result has a placeholder for the first two in one of its logs."""


def same_settings(runs: Runs) -> Iterator[Deviation]:
    yield from _differing(runs, SAME_SETTINGS)


def same_names(runs: Runs) -> Iterator[Deviation]:
    yield from _differing(runs, SAME_NAMES)


def _differing(runs: Runs, keys: Sequence[str]) -> Iterator[Deviation]:
    for key in keys:
        first = next((run for run in runs if run.log.first(key) is not None), None)
        if first is None:
            continue
        due = first.log.value(key)
        for run in runs:
            event = run.log.first(key)
            if event is not None and event.value != due:
                mend = "put runs of one configuration together; others belong to another system"
                found = f"{key} {event.value!r:.60}"
                yield Deviation(run.log.path, event.line, found, f"{due!r:.60} as in {first.log.path.name}", mend)


def different_seeds(runs: Runs) -> Iterator[Deviation]:
    seen: dict[int, Run] = {}
    for run in runs:
        for event in run.log.all("seed"):
            if type(event.value) is not int:
                continue
            other = seen.setdefault(event.value, run)
            if other is not run:
                mend = "draw every run's seed anew, and run again"
                found = f"seed {event.value}, that of {other.log.path.name}"
                yield Deviation(run.log.path, event.line, found, "another seed in every run", mend)


def seed_sequence(runs: Runs) -> Iterator[Deviation]:
    """Seeds one after the other, or evenly apart: not drawn."""
    seeds = [(run.seeds[0], run) for run in runs if run.seeds]
    values = sorted(seed for seed, _ in seeds)
    steps = {after - before for before, after in itertools.pairwise(values)}
    if len(values) >= RUNS and 0 not in steps and (len(steps) == 1 or max(steps) <= NEAR_SEEDS):
        event = seeds[0][1].log.first("seed")
        line = None if event is None else event.line
        found = f"seeds {', '.join(map(str, values[:6]))}"
        mend = "draw seeds from the clock or the system's randomness"
        yield Deviation(seeds[0][1].log.path, line, found, "seeds drawn anew for every run", mend)


def speeds_apart(runs: Runs) -> Iterator[Deviation]:
    """A run far faster than another of the same system: it had other machines, or its times are not its own.

    Rehearsals, which share their machine with other work, may differ.
    """
    timed = []
    for run in runs:
        if not (run.judged or GPT3).official:
            return
        lengths = [after.time_ms - before.time_ms for before, after in itertools.pairwise(run.evaluations)]
        if len(lengths) >= FEWEST_BLOCKS and (middle := statistics.median(lengths)) >= SHORTEST_BLOCK_MS:
            timed.append((middle, run))
    if len(timed) > 1:
        (fast, run), (slow, other) = min(timed, key=lambda one: one[0]), max(timed, key=lambda one: one[0])
        if slow > SPEEDS_APART * fast:
            found = f"{fast / 1000:,.1f} s between evaluations, in {other.log.path.name} {slow / 1000:,.1f} s"
            mend = "say which machines each run had, and why one of them was slower"
            yield Deviation(run.log.path, run.evaluations[0].line, found, "runs of one system, equally fast", mend)


def other_source(runs: Runs) -> Iterator[Deviation]:
    """One code made all runs of a result, so each key is logged from the same places in it."""
    if not runs:
        return
    first = runs[0]
    for run in runs[1:]:
        for key in first.log.by_key:
            mine, due = _sources(run, key), _sources(first, key)
            if key != STATISTICS and mine and due and mine.isdisjoint(due):
                event = run.log.first(key)
                found = f"{key} logged by {shortened(sorted(mine)[0], SHOWN)}"
                known = f"{shortened(sorted(due)[0], SHOWN)}, as in {first.log.path.name}"
                mend = "say what wrote each log: one code makes all runs of a result, and nothing edits its logs"
                yield Deviation(run.log.path, None if event is None else event.line, found, known, mend)
                break


def _sources(run: Run, key: str) -> set[str]:
    """File and line of the code, without its folder, which a job may have of its own."""
    found = set()
    for event in run.log.all(key)[:MOST_EVENTS]:
        file, line = event.metadata.get("file"), event.metadata.get("lineno")
        if isinstance(file, str) and isinstance(line, int):
            found.add(f"{file.rsplit('/', 1)[-1]}:{line}")
    return found


def enough_converged(runs: Runs) -> Iterator[Deviation]:
    """At most one of three may fail; of fewer files, none."""
    failed = _failed(runs)
    if len(failed) > (1 if len(runs) >= RUNS else 0):
        for run in failed:
            mend = "run again, by the order you announced: a result has at most one failed run"
            yield _at_stop(run, f"did not converge, one of {len(failed)}", "at most one of three", mend)


def one_failed(runs: Runs) -> Iterator[Deviation]:
    """Legal: it counts as the slowest."""
    failed = _failed(runs)
    if len(runs) >= RUNS and len(failed) == 1:
        mend = "nothing to mend: it counts as the slowest; be ready to say why it failed"
        yield _at_stop(failed[0], "did not converge, the one of three that may", "success", mend)


def stopped_early(runs: Runs) -> Iterator[Deviation]:
    """A failed run that was ended before the others had met the target: nobody can know that it would not have."""
    failed = _failed(runs)
    met = sorted(run.trained_tokens or 0 for run in runs if run not in failed)
    for run in failed:
        if met and (run.trained_tokens or 0) < met[0]:
            found = f"aborted at {run.trained_tokens or 0:,.0f} tokens"
            mend = "train a run to the target, or at least as far as the others went"
            yield _at_stop(run, found, f"at least {met[0]:,.0f}, where another run met the target", mend)


def _failed(runs: Runs) -> list[Run]:
    return [run for run in runs if not run.converged or run.reached is None]


def _at_stop(run: Run, found: str, due: str, mend: str) -> Deviation:
    stop = run.log.last("run_stop") or (run.log.events[-1] if run.log.events else None)
    return Deviation(run.log.path, None if stop is None else stop.line, found, due, mend)


def not_at_once(runs: Runs) -> Iterator[Deviation]:
    timed = [run for run in runs if run.run_start_ms is not None and run.run_stop_ms is not None]
    timed.sort(key=lambda run: run.run_start_ms or 0)
    for before, run in itertools.pairwise(timed):
        if (run.run_start_ms or 0) < (before.run_stop_ms or 0):
            start = run.log.first("run_start")
            found = f"started before {before.log.path.name} stopped"
            mend = "be ready to say which machines each run had"
            line = None if start is None else start.line
            yield Deviation(run.log.path, line, found, "one run after the other on one system", mend)
