"""Recompute the convergence test against reference points (RCP; docs/facts/mlperf_review.md 5).

The runs of a result, without the fastest and the slowest, are compared with reference runs at the same batch size,
with a point interpolated between two batch sizes, or with the smallest batch size. A result fails if it needs fewer
tokens than a one-sided t test at 5 % allows. A result between that limit and the reference mean passes, but its time is
multiplied by the ratio of the two means. Everything is in tokens here, also where the official files have samples.
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

from benchmark.judging.results.judged import GPT3, Judged
from benchmark.judging.results.run_summary import RunSummary
from benchmark.run_record.events.mllog import as_number
from foundation.errors import InputError
from foundation.regular_files import read_regular

ALPHA = 0.05
INTERPOLATED = 2
"""Number of reference runs that the official checker assumes for an interpolated point, over those of a result."""
NOT_CONVERGED = 1e9
"""Value of a run without success, in the unit of the logs: meant as infinity, but fewer tokens than any converged
GPT-3 run takes (docs/facts/mlperf_review.md 5.8).
"""
FEWEST_REFERENCE_RUNS = 4
"""Least number of reference runs of a point: its mean leaves out the fastest and the slowest, and it needs a
deviation."""
MOST_POINT_BYTES = 1 << 20
OUTLIER = 2.0
"""Factor over its point's median from which a reference run is no measurement: a published run took 274 evaluations,
its peers 24."""

Standing = Literal["passes", "passes, scaled", "fails", "no reference point", "not tested"]


@dataclass(frozen=True)
class ReferencePoint:
    """Reference runs at one batch size."""

    batch_size: float
    learning_rate: float | None
    tokens: tuple[float, ...]
    """Tokens of every reference run, sorted; empty for an interpolated point."""
    mean: float
    """Mean without the fastest and the slowest run."""
    deviation: float
    """Population standard deviation of all runs."""
    least: float
    """Smallest accepted mean of a result's middle runs."""
    outliers: tuple[float, ...] = ()
    """Runs that void the point: with them the test passes everything."""


@dataclass(frozen=True)
class Convergence:
    """Outcome of the convergence test for a result."""

    standing: Standing
    why: str
    batch_size: float | None
    tokens: tuple[float, ...]
    """Tokens of each run, as the official checker takes them, sorted."""
    middle: float | None
    """Mean of the tokens without the fastest and the slowest run."""
    point: ReferencePoint | None
    """Point that the result was compared with, interpolated if necessary."""
    factor: float
    """Factor by which the time is multiplied: 1 or more."""
    points: tuple[ReferencePoint, ...]
    """All points, pruned ones included."""
    void: tuple[ReferencePoint, ...] = ()
    """Points with outliers among those that the result was compared with."""
    repaired: Standing | None = None
    """Outcome without the outliers; None if there are no outliers."""


@dataclass(frozen=True)
class ReferenceChoice:
    """Choice of the reference points of the test; by default the ruleset's, pruned, as in a submission."""

    custom: Path | None = None
    """File of points in the official format, such as points that a submitter asked for; :func:`custom_points` reads it
    once."""
    pruned: bool = True
    """True to leave out points slower than their neighbours' interpolation: the official tool's pruned_rcps, otherwise
    its full_rcps."""


USUAL_REFERENCES = ReferenceChoice()


def points_for(judged: Judged, ruleset: str, choice: ReferenceChoice = USUAL_REFERENCES) -> tuple[ReferencePoint, ...]:
    """Return the points of a user's file, of the benchmark, or of the official tools for the ruleset."""
    if choice.custom is not None:
        return custom_points(choice.custom, judged)
    official = files("mlperf_logging.rcp_checker") / f"training_{ruleset}" / f"rcps_{judged.name}.json"
    return read_points((judged.points or official).read_text(encoding="utf-8"), judged)


def custom_points(path: Path, judged: Judged = GPT3) -> tuple[ReferencePoint, ...]:
    """Return the reference points of a user's file. Raises InputError for a file without any."""
    expected = "--custom-rcps takes records with BS and 'Epochs to converge', as rcps_gpt3.json has them"
    try:
        points = read_points(read_regular(path, MOST_POINT_BYTES).decode(), judged)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; {expected}") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"{path}: no reference points ({type(error).__name__}: {error}); {expected}") from error
    for point in points:
        numbers = (point.batch_size, *point.tokens)
        if len(point.tokens) < FEWEST_REFERENCE_RUNS or not all((as_number(number) or 0) > 0 for number in numbers):
            raise InputError(
                f"{path}: a point at batch size {point.batch_size} with {len(point.tokens)} runs; expected numbers "
                f"above 0, and at least {FEWEST_REFERENCE_RUNS} runs"
            )
    if not points:
        raise InputError(f"{path}: no reference points; {expected}")
    return points


def read_points(text: str, judged: Judged = GPT3) -> tuple[ReferencePoint, ...]:
    """Return the points of a file in the official format, the smallest batch size first."""
    points = []
    for record in json.loads(text).values():
        rate = record.get("Hyperparams", {}).get("opt_base_learning_rate")
        tokens = [count * judged.tokens_per_unit for count in record["Epochs to converge"]]
        points.append(make_point(record["BS"], rate, tokens, judged))
    return tuple(sorted(points, key=lambda point: point.batch_size))


def make_point(
    batch_size: float, learning_rate: float | None, tokens: Sequence[float], judged: Judged = GPT3
) -> ReferencePoint:
    ordered = tuple(sorted(tokens))
    middle_tokens = ordered[1:-1]
    mean, deviation = statistics.fmean(middle_tokens), statistics.pstdev(ordered)
    median = statistics.median(ordered)
    outliers = tuple(count for count in ordered if count > OUTLIER * median)
    least = _least(mean, deviation, len(middle_tokens), judged)
    return ReferencePoint(batch_size, learning_rate, ordered, mean, deviation, least, outliers)


def judge_convergence(
    runs: Sequence[RunSummary], points: Sequence[ReferencePoint], pruned: bool = True, judged: Judged = GPT3
) -> Convergence:
    """Return the outcome of the official test of a result's runs, and the outcome without void reference runs."""
    sizes = {run.global_batch_size for run in runs}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    tokens = tuple(sorted(_tokens(run, judged) for run in runs))
    bare = Convergence("not tested", "", size, tokens, None, None, 1.0, tuple(points))
    if len(runs) != judged.runs:
        return replace(bare, why=f"{len(runs)} run{'s' if len(runs) != 1 else ''}: the test takes {judged.runs}")
    if size is None:
        return replace(bare, standing="fails", why="the runs have no batch size in common")
    if sum(not run.converged for run in runs) > judged.score.dropped:
        return replace(bare, standing="fails", why="more than one run did not converge")
    tested = _stand(bare, size, prune(points) if pruned else points, judged)
    clean = [_without_outliers(point, judged) for point in points]
    if tested.point is None or not tested.void:
        return tested
    return replace(tested, repaired=_stand(bare, size, prune(clean) if pruned else clean, judged).standing)


def prune(points: Sequence[ReferencePoint]) -> tuple[ReferencePoint, ...]:
    """Return the points that count: none below the batch size of the fastest point, none slower than its neighbours'
    interpolation."""
    if not points:
        return ()
    fastest = min(points, key=lambda point: point.mean)
    pruned = [point for point in points if point.batch_size >= fastest.batch_size]
    index = 1
    while index < len(pruned) - 1:
        between, _ = _between(pruned[index].batch_size, pruned[index - 1], pruned[index + 1])
        if pruned[index].mean > between:
            del pruned[index]
            # as the official checker, which goes back only by the increment that follows
            index -= 1
        index += 1
    return tuple(pruned)


def _stand(bare: Convergence, size: float, points_kept: Sequence[ReferencePoint], judged: Judged) -> Convergence:
    below = [point for point in points_kept if point.batch_size < size]
    above = [point for point in points_kept if point.batch_size > size]
    matching = [point for point in points_kept if point.batch_size == size]
    if matching:
        references, point, why = matching, matching[0], f"reference point at batch size {size:g}"
    elif below and above:
        references = [below[-1], above[0]]
        mean, deviation = _between(size, *references)
        least = _least(mean, deviation, INTERPOLATED * judged.runs, judged)
        point = ReferencePoint(size, None, (), mean, deviation, least)
        why = f"between the reference points at {references[0].batch_size:g} and {references[1].batch_size:g}"
    elif above:
        references, point = [above[0]], above[0]
        why = f"below the smallest reference point, compared with that at {above[0].batch_size:g}"
    else:
        largest = f"{below[-1].batch_size:g}" if below else "none"
        return replace(bare, standing="no reference point", why=f"above the largest reference point, {largest}")
    slack = judged.score.convergence_slack_samples * judged.sequence_length
    point, middle = replace(point, least=point.least - slack), judged.middle(bare.tokens)
    standing: Standing = "fails"
    if middle >= point.least:
        standing = "passes, scaled" if middle < point.mean else "passes"
    factor = point.mean / middle if standing == "passes, scaled" else 1.0
    void = tuple(reference for reference in references if reference.outliers)
    return replace(bare, standing=standing, why=why, middle=middle, point=point, factor=factor, void=void)


def _tokens(run: RunSummary, judged: Judged) -> float:
    """Return a run's tokens as the official checker takes them: those of the last evaluation before run_stop."""
    lost = NOT_CONVERGED * judged.tokens_per_unit
    if not run.converged:
        return lost
    stop = run.log.first("run_stop")
    line = math.inf if stop is None else stop.line
    tokens = [
        evaluation.tokens for evaluation in run.evaluations if evaluation.tokens is not None and evaluation.line < line
    ]
    return round(tokens[-1], 3) if tokens else lost


def _between(size: float, low: ReferencePoint, high: ReferencePoint) -> tuple[float, float]:
    """Return mean and deviation at a batch size between two points."""
    share = (size - low.batch_size) / (high.batch_size - low.batch_size)
    mean = low.mean + share * (high.mean - low.mean)
    return mean, low.deviation + share * (high.deviation - low.deviation)


def _without_outliers(point: ReferencePoint, judged: Judged) -> ReferencePoint:
    if not point.outliers:
        return point
    tokens = [count for count in point.tokens if count not in point.outliers]
    return make_point(point.batch_size, point.learning_rate, tokens, judged)


def _least(mean: float, deviation: float, reference_runs: int, judged: Judged) -> float:
    """Return the smallest accepted mean: mean - t(0.95, df) s sqrt(1 / n_ref + 1 / n_sub), not below 0."""
    if deviation == 0:
        return mean
    from scipy.special import stdtrit  # slow to import

    freedom = reference_runs + judged.num_middle_runs - 2
    quantile = float(stdtrit(freedom, 1 - ALPHA))
    return max(0.0, mean - quantile * deviation * math.sqrt(1 / reference_runs + 1 / judged.num_middle_runs))
