"""What the runs of one result have in common, and what they must not, and what the recomputed convergence test says of
them (docs/facts/mlperf_review.md 4.4, 5, 7.9, 7.10)."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark.results.subjects import ResultSet
from benchmark.review.findings import Deviation, Run, Severity
from benchmark.review.rules.naming_rules import placeholder

Runs = Sequence[Run]

RUNS = 3
"""Files that the official package checker wants, exactly."""
NEAR_SEEDS = 2
"""Seeds of a result no farther apart than this from one to the next are called a sequence."""
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
FAILING = ("fails", "no reference point")
SAME_NAMES = ("submission_org", "submission_platform", "gradient_accumulation_steps")


def same_settings(runs: Runs) -> Iterator[Deviation]:
    yield from _differing(runs, SAME_SETTINGS)


def same_names(runs: Runs) -> Iterator[Deviation]:
    """Names that differ; a placeholder in one log is told by itself."""
    yield from _differing(runs, SAME_NAMES)


def _differing(runs: Runs, keys: Sequence[str]) -> Iterator[Deviation]:
    for key in keys:
        logged = [(run, event) for run in runs if (event := run.log.first(key)) is not None]
        known = [(run, event) for run, event in logged if not placeholder(f"{event.value}")]
        for run, event in known[1:]:
            first, due = known[0][0], known[0][1].value
            if event.value != due:
                found = f"{key} {event.value!r:.60}"
                yield Deviation(run.log.path, event.line, found, f"{due!r:.60} as in {first.log.path.name}")


def different_seeds(runs: Runs) -> Iterator[Deviation]:
    seen: dict[int, Run] = {}
    for run in runs:
        for event in run.log.all("seed"):
            if type(event.value) is int and seen.setdefault(event.value, run) is not run:
                found = f"seed {event.value}, that of {seen[event.value].log.path.name}"
                yield Deviation(run.log.path, event.line, found, "another seed in every run")


def seed_sequence(runs: Runs) -> Iterator[Deviation]:
    """Seeds one after the other, or evenly apart: not drawn."""
    seeds = [(run.seeds[0], run) for run in runs if run.seeds]
    values = sorted(seed for seed, _ in seeds)
    steps = {after - before for before, after in itertools.pairwise(values)}
    if len(values) >= RUNS and 0 not in steps and (len(steps) == 1 or max(steps) <= NEAR_SEEDS):
        event = seeds[0][1].log.first("seed")
        found = f"seeds {', '.join(map(str, values[:6]))}"
        line = None if event is None else event.line
        yield Deviation(seeds[0][1].log.path, line, found, "seeds drawn anew for every run")


def failed(runs: Runs) -> Iterator[Deviation]:
    """One of three may fail, and counts as the slowest; of fewer files, none."""
    lost = [run for run in runs if not run.converged or run.reached is None]
    legal = len(lost) <= (1 if len(runs) >= RUNS else 0)
    met = min((run.trained_tokens or 0 for run in runs if run not in lost), default=0)
    for run in lost:
        tokens = run.trained_tokens or 0
        early = f" at {tokens:,.0f} tokens, before the {met:,.0f} of another run" if tokens < met else ""
        stop = run.log.last("run_stop") or (run.log.events[-1] if run.log.events else None)
        found = f"did not converge{early}" if legal else f"did not converge, one of {len(lost)}"
        line = None if stop is None else stop.line
        yield Deviation(run.log.path, line, found, "at most one of three", severity="warning" if legal else None)


def convergence(one: ResultSet) -> Iterator[Deviation]:
    """An error where the official test fails, a question where it passes only by void data of the reference."""
    result = one.convergence
    void = "; ".join(
        f"{outlier:,.0f} tokens at {point.batch_size:g}" for point in result.void for outlier in point.outliers
    )
    if one.is_open:
        return
    if result.standing in FAILING:
        if result.point is None or result.median is None:
            yield _at_middle_run(one, result.why, "three runs to compare with reference points")
        else:
            found = f"median {result.median:,.0f} tokens to the target, {result.why}"
            yield _at_middle_run(one, found, f"at least {result.point.least:,.0f}")
    elif result.repaired in FAILING:
        found = f"passes only by void reference data: {void}"
        yield _at_middle_run(one, found, "a pass without them too", "warning")
    elif result.void:
        yield _at_middle_run(one, f"void reference data: {void}; it passes without them too", "nothing", "note")


def scaled(one: ResultSet) -> Iterator[Deviation]:
    result = one.convergence
    if result.factor > 1 and result.median is not None and result.point is not None:
        found = f"median {result.median:,.0f} tokens, fewer than the reference mean: times {result.factor:.4f}"
        yield _at_middle_run(one, found, f"{result.point.mean:,.0f} for a score as measured")


def _at_middle_run(one: ResultSet, found: str, due: str, severity: Severity | None = None) -> Deviation:
    """At the last evaluation of the middle run, where its tokens stand."""
    runs = sorted(one.runs, key=lambda run: (not run.converged, run.trained_tokens or 0))
    middle = runs[len(runs) // 2] if runs else None
    if middle is None:
        path: Path = one.folder or (one.files[0].parent if one.files else Path(one.name))
        return Deviation(path, None, found, due, severity=severity)
    event = middle.log.last("eval_accuracy")
    line = None if event is None else event.line
    return Deviation(middle.log.path, line, found, due, severity=severity)
