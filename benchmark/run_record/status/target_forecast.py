"""After how many tokens a run will meet its target, from its evaluations and the curves of earlier runs.

A run's curve has the shape of the reference curve of its batch size and stands a little above or below it. Both meet
the target only at an evaluation, so that the forecast is an evaluation, too. How far such forecasts are off:
docs/telemetry.md.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.reference_curves import REFERENCE_CURVES
from benchmark.run_record.status.reference_curve import CurveAtBatchSize, curve_at

LATEST = 8
"""Number of latest evaluations whose median is a run's offset from its reference curve; a median ignores a spike."""
DOUBT = 4
"""Number of evaluations after which half of that distance is believed to last."""
Z_90 = 1.645
"""Standard deviations on either side that hold 90 % of a normal distribution."""
SPREAD, FIRST_SPREAD = 0.4, 0.75
"""Standard deviations, in values of the reference curve: of a run's own unevenness, and of where it will stand while
nothing is known of it, which goes down with the number of evaluations."""
OWN_LATEST, OWN_FEWEST = 4, 3
"""Most and fewest evaluations that are extrapolated without a reference curve."""
OWN_SPREAD = 0.5
"""Standard deviation of such an extrapolation, as a share of the tokens that remain."""
SIZE_MARGIN = 1.5
"""Factor beyond the smallest and the largest curve's batch size up to which the nearest curve applies."""
FARTHEST = 10
"""Times the length of the curve: a target that is not met until then is out of sight."""


@dataclass(frozen=True)
class TargetForecast:
    """The evaluation that will meet the target, in tokens trained since the initial checkpoint."""

    tokens: int
    low: int
    high: int
    """At least nine runs of ten meet the target from ``low`` to ``high``, both included."""
    basis: Literal["reference curves", "own evaluations"]


def forecast(
    benchmark: Benchmark, evaluations: Sequence[tuple[int, float]], trained_tokens: int
) -> TargetForecast | None:
    """Return when the target will be met; None without a target, or without a forecast.

    ``evaluations``: trained tokens and log perplexity (nats per token) of each so far, in order. ``trained_tokens``:
    those of the run until this moment.
    """
    target = benchmark.target_log_perplexity
    if target is None:
        return None
    curve = _reference(benchmark)
    evaluations = [evaluation for evaluation in evaluations if math.isfinite(evaluation[1])]
    if curve is None:
        interval = _by_own_evaluations(evaluations, target, trained_tokens)
    else:
        interval = _by_curve(curve, evaluations, target, trained_tokens)
    if interval is None:
        return None
    tokens, low, high = (_at_evaluation(benchmark, max(count, trained_tokens + 1)) for count in interval)
    return TargetForecast(tokens, low, high, "own evaluations" if curve is None else "reference curves")


def _at_evaluation(benchmark: Benchmark, tokens: float) -> int:
    """Return the trained tokens of the first evaluation at or after ``tokens``."""
    interval = benchmark.eval_interval * benchmark.global_batch_size * benchmark.model.seq_length
    return math.ceil(tokens / interval - 1e-9) * interval


def _reference(benchmark: Benchmark) -> CurveAtBatchSize | None:
    """Return the reference curve of a run; None if no published run has its model and about its batch size."""
    published = BENCHMARKS.get(benchmark.name)
    curves = REFERENCE_CURVES.get(benchmark.name)
    size = benchmark.global_batch_size
    if published is None or curves is None or published.model != benchmark.model:
        return None
    if not curves[0].global_batch_size / SIZE_MARGIN <= size <= curves[-1].global_batch_size * SIZE_MARGIN:
        return None
    return curve_at(curves, size)


def _by_curve(
    reference: CurveAtBatchSize, evaluations: Sequence[tuple[int, float]], target: float, trained_tokens: int
) -> tuple[float, float, float] | None:
    """Return the tokens at the target: the middle, the lower and the upper end."""
    unit, count = reference.tokens_per_value, len(evaluations)
    distances = [value - reference.log_perplexity(tokens) for tokens, value in evaluations[-LATEST:]]
    distance = statistics.median(distances) * count / (count + DOUBT) if distances else 0.0
    crossing = _crossing(
        lambda count: reference.log_perplexity(count * unit) + distance, target, FARTHEST * reference.num_values
    )
    if crossing is None:
        return None
    # evaluations so far were above the target, wherever the curve may stand
    crossing = max(crossing, trained_tokens / unit)
    spread = Z_90 * math.hypot(SPREAD, FIRST_SPREAD / math.sqrt(count + 1))
    return crossing * unit, (crossing - spread) * unit, (crossing + spread) * unit


def _crossing(curve: Callable[[float], float], target: float, farthest: int) -> float | None:
    """Return the place where ``curve`` first is at or below ``target``; 0 if the curve begins there."""
    previous_value = math.inf
    for count in range(1, farthest + 1):
        value = curve(count)
        if value <= target:
            return count - (target - value) / (previous_value - value) if math.isfinite(previous_value) else 0.0
        previous_value = value
    return None


def _by_own_evaluations(
    evaluations: Sequence[tuple[int, float]], target: float, trained_tokens: int
) -> tuple[float, float, float] | None:
    """Return the same from the latest evaluations, continued in a line over the logarithm of tokens."""
    latest = [(math.log(tokens), value) for tokens, value in evaluations[-OWN_LATEST:]]
    if len(latest) < OWN_FEWEST:
        return None
    slope = statistics.median(
        (later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in itertools.combinations(latest, 2)
    )
    if slope >= 0:
        return None
    level = statistics.median(value - slope * at for at, value in latest)
    exponent = (target - level) / slope
    if exponent > math.log(trained_tokens + 1) + math.log(FARTHEST):
        return None
    remaining = max(math.exp(exponent) - trained_tokens, 0.0)
    return tuple(trained_tokens + remaining * factor for factor in (1.0, 1 - OWN_SPREAD, 1 + OWN_SPREAD))  # type: ignore[return-value]
