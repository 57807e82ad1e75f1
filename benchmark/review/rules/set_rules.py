"""What the runs of one result have in common, and what they must not (docs/facts/mlperf_review.md 4.4, 7.9)."""

import itertools
from collections.abc import Iterator, Sequence

from benchmark.review.findings import Deviation, Run

Runs = Sequence[Run]

RUNS = 3
"""Files that the official package checker wants, exactly."""
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


def one_may_fail(runs: Runs) -> Iterator[Deviation]:
    failed = [run for run in runs if not run.converged or run.reached is None]
    if len(runs) >= RUNS and len(failed) > 1:
        for run in failed:
            stop = run.log.last("run_stop") or (run.log.events[-1] if run.log.events else None)
            found = f"did not converge, one of {len(failed)}"
            mend = "run again, by the order you announced: a result has at most one failed run"
            yield Deviation(run.log.path, None if stop is None else stop.line, found, "at most one of three", mend)


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
