"""Check that the runs of one result agree and differ where they must, and apply the recomputed convergence test
(docs/facts/mlperf_review.md 4.4, 5, 7.9, 7.10)."""

import itertools
import math
from collections.abc import Iterator

from benchmark.judging.results.judged import DISCLOSURE
from benchmark.judging.results.subjects import ResultSet
from benchmark.judging.review.findings import Deviation, Run, at
from benchmark.judging.review.rules.key_rules import single_runs
from benchmark.judging.review.rules.naming_rules import placeholder

FEWEST_SEEDS = 3
"""Least number of seeds that can be a sequence."""
NEAR_SEEDS = 2
"""Largest difference between neighbouring seeds of a result that are called a sequence."""
SAME = (
    "submission_benchmark", "submission_division", "global_batch_size", "opt_base_learning_rate",
    "opt_end_learning_rate", "opt_learning_rate_warmup_steps", "opt_learning_rate_decay_steps", "init_checkpoint_step",
    "eval_samples", "submission_org", "submission_platform", "gradient_accumulation_steps",
    *(key for key in DISCLOSURE if key != "config_filename"),
)  # fmt: skip
"""Keys that have one value in all runs."""
FAILING = ("fails", "no reference point")


def same_settings(results: ResultSet) -> Iterator[Deviation]:
    """Check that all runs have the same settings; placeholders have a rule of their own."""
    for key in SAME:
        logged = [(run, event) for run in results.runs if (event := run.log.first(key)) is not None]
        named = [(run, event) for run, event in logged if not placeholder(f"{event.value}")]
        for run, event in named[1:]:
            first, first_value = named[0][0], named[0][1].value
            if event.value != first_value:
                observed = f"{key} {event.value!r:.60}"
                yield at(run, event, observed, f"{first_value!r:.60} as in {first.log.path.name}", key)


def seeds(results: ResultSet) -> Iterator[Deviation]:
    """Check that every run has its own seed; seeds in sequence, or evenly spaced, were hardly drawn at random."""
    runs_by_seed: dict[int, Run] = {}
    for run in single_runs(results.runs):
        for event in run.log.all("seed"):
            if type(event.value) is int and runs_by_seed.setdefault(event.value, run) is not run:
                observed = f"seed {event.value}, that of {runs_by_seed[event.value].log.path.name}"
                yield at(run, event, observed, "another seed in every run")
    first = [(run.seeds[0], run) for run in results.runs if run.seeds]
    values = sorted(seed for seed, _ in first)
    steps = {larger - smaller for smaller, larger in itertools.pairwise(values)}
    if len(values) >= FEWEST_SEEDS and 0 not in steps and (len(steps) == 1 or max(steps) <= NEAR_SEEDS):
        run, observed = first[0][1], f"seeds {', '.join(map(str, values[:6]))}"
        yield at(run, run.log.all("seed")[0], observed, "seeds drawn anew for every run", "in sequence")


def layout(results: ResultSet) -> Iterator[Deviation]:
    """Ask once whether the disclosed layout fits the described devices, and its micro-batches the batch."""
    devices = None if results.system is None else results.system.accelerators
    for run in results.runs:
        shares = [run.log.number(f"{name}_parallelism") for name in ("tensor", "pipeline", "context")]
        event = run.log.first("tensor_parallelism")
        if event is None or devices is None or any(share is None or share < 1 for share in shares):
            continue
        size = math.prod(int(share or 1) for share in shares)
        observed = f"tensor x pipeline x context parallelism {size}"
        if devices % size:
            yield at(run, event, observed, f"a divisor of {devices} devices")
            return
        parts = [run.log.number(key) for key in ("micro_batch_size", "gradient_accumulation_steps")]
        batch = math.prod(part or 0 for part in parts) * devices // size
        if batch and run.global_batch_size and batch != run.global_batch_size:
            words = f"{observed} on {devices} devices, and micro-batches of {parts[0]:g}, {parts[1]:g} at a time"
            yield at(run, event, f"{words}: {batch:g} samples", f"global_batch_size {run.global_batch_size:g}")
            return


def failed(results: ResultSet) -> Iterator[Deviation]:
    """Check for failed runs. One of a result may fail, and counts as the slowest; of fewer files, none may."""
    lost = [run for run in results.runs if not run.converged or run.reached is None]
    legal = len(lost) <= (results.judged.score.dropped if len(results.runs) >= results.judged.runs else 0)
    met = min((run.trained_tokens or 0 for run in results.runs if run not in lost), default=0)
    for run in lost:
        tokens = run.trained_tokens or 0
        judged = results.judged
        early = f" at {judged.count(tokens)} {judged.unit}, before the {judged.count(met)} of another run"
        early = early if tokens < met else ""
        stop = run.log.last("run_stop") or (run.log.events[-1] if run.log.events else None)
        ended = "ends without run_stop" if run.breaks_off else "did not converge"
        observed = f"{ended}{early}" if legal else f"{ended}, one of {len(lost)}"
        yield at(run, stop, observed, f"at most {judged.one_of}", "one" if legal else "")


def convergence(results: ResultSet) -> Iterator[Deviation]:
    """Apply the convergence test: an error if the official test fails, a question if it passes only by void data of the
    reference, a note if the time is multiplied. The finding points to the middle run's last evaluation, which has its
    tokens."""
    result, judged = results.convergence, results.judged
    if results.is_open:
        return
    runs = sorted(results.runs, key=lambda run: (not run.converged, run.trained_tokens or 0))
    event = runs[len(runs) // 2].log.last("eval_accuracy") if runs else None
    path, line = runs[len(runs) // 2].log.path if runs else results.path, None if event is None else event.line
    point, middle, void = result.point, result.middle, result.void
    counted, words = judged.count(middle or 0), "median" if judged.num_middle_runs == 1 else "mean"
    slow = "; ".join(
        f"{judged.count(outlier)} {judged.unit} at {void_point.batch_size:g}"
        for void_point in void
        for outlier in void_point.outliers
    )
    if result.standing in FAILING and (point is None or middle is None):
        number = "three" if judged.runs == 3 else judged.runs
        yield Deviation(path, line, result.why, f"{number} runs to compare with reference points")
    elif result.standing in FAILING and point is not None:
        observed = f"{words} {counted} {judged.unit} to the target, {result.why}"
        yield Deviation(path, line, observed, f"at least {judged.count(point.least)}")
    elif result.repaired in FAILING:
        yield Deviation(
            path, line, f"passes only by void reference data: {slow}", "a pass without them too", "only by void points"
        )
    elif void:
        yield Deviation(
            path, line, f"void reference data: {slow}; it passes without them too", "nothing", "void points"
        )
    if result.factor > 1 and point is not None:
        observed = f"{words} {counted} {judged.unit}, fewer than the reference mean: times {result.factor:.4f}"
        yield Deviation(path, line, observed, f"{judged.count(point.mean)} for a score as measured", "scaled")
