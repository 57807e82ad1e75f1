"""Check that the runs of one result agree and differ where they must, and apply the recomputed convergence test
(docs/facts/mlperf_review.md 4.4, 5, 7.9, 7.10)."""

import itertools
from collections.abc import Iterator

from benchmark.results.judged import GPT3
from benchmark.results.subjects import ResultSet
from benchmark.review.findings import Deviation, Run, Severity, at
from benchmark.review.rules.naming_rules import placeholder

RUNS = GPT3.runs
"""Number of files that the official package checker requires, exactly."""
NEAR_SEEDS = 2
"""Largest difference between neighbouring seeds of a result that are called a sequence."""
SAME: dict[str, Severity | None] = {
    **dict.fromkeys((
        "submission_benchmark",
        "submission_division",
        "global_batch_size",
        "opt_base_learning_rate",
        "opt_end_learning_rate",
        "opt_learning_rate_warmup_steps",
        "opt_learning_rate_decay_steps",
        "init_checkpoint_step",
        "eval_samples",
    )),
    **dict.fromkeys(("submission_org", "submission_platform", "gradient_accumulation_steps"), "warning"),
}  # fmt: skip
"""Keys that have one value in all runs; "warning" marks keys in which runs of one configuration may differ."""
FAILING = ("fails", "no reference point")


def same_settings(one: ResultSet) -> Iterator[Deviation]:
    """Check that all runs have the same settings; placeholders have a rule of their own."""
    for key, severity in SAME.items():
        logged = [(run, event) for run in one.runs if (event := run.log.first(key)) is not None]
        known = [(run, event) for run, event in logged if not placeholder(f"{event.value}")]
        for run, event in known[1:]:
            first, due = known[0][0], known[0][1].value
            if event.value != due:
                found = f"{key} {event.value!r:.60}"
                yield at(run, event, found, f"{due!r:.60} as in {first.log.path.name}", severity)


def seeds(one: ResultSet) -> Iterator[Deviation]:
    """Check that every run has its own seed; seeds in sequence, or evenly spaced, were hardly drawn at random."""
    seen: dict[int, Run] = {}
    for run in one.runs:
        for event in run.log.all("seed"):
            if type(event.value) is int and seen.setdefault(event.value, run) is not run:
                found = f"seed {event.value}, that of {seen[event.value].log.path.name}"
                yield at(run, event, found, "another seed in every run")
    first = [(run.seeds[0], run) for run in one.runs if run.seeds]
    values = sorted(seed for seed, _ in first)
    steps = {after - before for before, after in itertools.pairwise(values)}
    if len(values) >= RUNS and 0 not in steps and (len(steps) == 1 or max(steps) <= NEAR_SEEDS):
        run, found = first[0][1], f"seeds {', '.join(map(str, values[:6]))}"
        yield at(run, run.log.all("seed")[0], found, "seeds drawn anew for every run", "warning")


def failed(one: ResultSet) -> Iterator[Deviation]:
    """Check for failed runs. One of three may fail, and counts as the slowest; of fewer files, none may."""
    lost = [run for run in one.runs if not run.converged or run.reached is None]
    legal = len(lost) <= (1 if len(one.runs) >= RUNS else 0)
    met = min((run.trained_tokens or 0 for run in one.runs if run not in lost), default=0)
    for run in lost:
        tokens = run.trained_tokens or 0
        early = f" at {tokens:,.0f} tokens, before the {met:,.0f} of another run" if tokens < met else ""
        stop = run.log.last("run_stop") or (run.log.events[-1] if run.log.events else None)
        found = f"did not converge{early}" if legal else f"did not converge, one of {len(lost)}"
        yield at(run, stop, found, "at most one of three", "warning" if legal else None)


def convergence(one: ResultSet) -> Iterator[Deviation]:
    """Apply the convergence test: an error if the official test fails, a question if it passes only by void data of the
    reference, a note if the time is multiplied. The finding points to the middle run's last evaluation, which has its
    tokens."""
    result = one.convergence
    if one.is_open:
        return
    runs = sorted(one.runs, key=lambda run: (not run.converged, run.trained_tokens or 0))
    event = runs[len(runs) // 2].log.last("eval_accuracy") if runs else None
    path, line = runs[len(runs) // 2].log.path if runs else one.path, None if event is None else event.line
    point, median, void = result.point, result.median, result.void
    slow = "; ".join(f"{outlier:,.0f} tokens at {each.batch_size:g}" for each in void for outlier in each.outliers)
    if result.standing in FAILING and (point is None or median is None):
        yield Deviation(path, line, result.why, "three runs to compare with reference points")
    elif result.standing in FAILING and point is not None:
        found = f"median {median:,.0f} tokens to the target, {result.why}"
        yield Deviation(path, line, found, f"at least {point.least:,.0f}")
    elif result.repaired in FAILING:
        yield Deviation(path, line, f"passes only by void reference data: {slow}", "a pass without them too", "warning")
    elif void:
        yield Deviation(path, line, f"void reference data: {slow}; it passes without them too", "nothing", "note")
    if result.factor > 1 and median is not None and point is not None:
        found = f"median {median:,.0f} tokens, fewer than the reference mean: times {result.factor:.4f}"
        yield Deviation(path, line, found, f"{point.mean:,.0f} for a score as measured", "note")
