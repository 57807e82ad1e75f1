"""What the runs of one result have in common, and what they must not (docs/facts/mlperf_review.md 4.4, 7.9)."""

import itertools
from collections.abc import Iterator, Sequence

from benchmark.review.findings import Deviation, Run

Runs = Sequence[Run]

RUNS = 3
NEAR_SEEDS = 2
"""Seeds of a result no farther apart than this from one to the next are called a sequence."""
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
