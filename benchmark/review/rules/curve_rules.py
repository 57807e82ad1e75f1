"""The envelope of accepted accuracy curves: how far a run lies from the published ones of its batch size. A question.

Distances are from the median curve (benchmark/config/reference_curves.py), between two batch sizes from what lies
between their curves, in standard deviations of the 117 distinct published logs (docs/facts/mlperf_review.md 6.9).
Closed division of gpt3 only.
"""

import bisect
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.config.reference_curves import REFERENCE_CURVES, ReferenceCurve
from benchmark.review.findings import Deviation, Run, at

CURVES = REFERENCE_CURVES["gpt3_175b"]
LAST_VALUES = 6
"""Of a curve, by which it goes on where a run is longer."""
FEWEST_VALUES = 6
MOST_FALL = (0.03, 0.012)
"""Below the best value so far, in the first five evaluations and later. In published logs at most 0.0152 and 0.0058."""
EARLY_EVALUATIONS = 5


@dataclass(frozen=True)
class Feature:
    """A number of a curve's distance from the reference: its spread, and how far is far."""

    words: str
    deviation: float
    """Standard deviation of the published runs."""
    far: float
    """Distance in deviations, either way."""


FIRST = Feature("the first value", 1.3e-3, 4)  # published: at most 2.5 deviations
LEVEL = Feature("the middle of all values after the second", 6.2e-4, 5)  # 3.8
LAST = Feature("the last value", 6.9e-4, 5)  # 3.1


def envelope(run: Run) -> Iterator[Deviation]:
    """The farthest of what is far: the rest follows from it."""
    size = run.global_batch_size
    if size is None or run.division == "open" or not run.rules.official:
        return
    known = [
        (one, one.log_perplexity or 0.0) for one in run.evaluations if one.log_perplexity is not None and one.tokens
    ]
    rest = [value - expected(size, one.tokens or 0) for one, value in known]
    found = [(FIRST, known[0][0], rest[0], f"{known[0][1]:.4f}")] if known else []
    if len(known) >= FEWEST_VALUES:
        (last, value), level = known[-1], statistics.median(rest[2:])
        found += [(LEVEL, last, level, f"{level:+.4f} from the curve"), (LAST, last, rest[-1], f"{value:.4f}")]
    far = [(abs(distance) / feature.deviation, feature, place, words) for feature, place, distance, words in found]
    far = [(times, feature, place, words) for times, feature, place, words in far if times > feature.far]
    for times, feature, place, words in sorted(far, key=lambda one: -one[0] / one[1].far)[:1]:
        due = f"within {feature.far:g} of the median curve at batch size {size:g}"
        yield at(run, place, f"{feature.words} {words}: {times:.1f} standard deviations off published runs", due)


def expected(batch_size: float, tokens: float) -> float:
    """Log perplexity of the reference at so many tokens."""
    sizes = [curve.global_batch_size for curve in CURVES]
    place = bisect.bisect_left(sizes, batch_size)
    if place == 0 or place == len(sizes):
        return _on_curve(CURVES[min(place, len(sizes) - 1)], tokens)
    low, high = CURVES[place - 1], CURVES[place]
    share = (batch_size - low.global_batch_size) / (high.global_batch_size - low.global_batch_size)
    return (1 - share) * _on_curve(low, tokens) + share * _on_curve(high, tokens)


def _on_curve(curve: ReferenceCurve, tokens: float) -> float:
    """Between two values by a straight line; beyond the last as before it, but no farther than twice the curve."""
    values = curve.log_perplexities
    place = min(max(tokens / curve.tokens_per_value - 1, 0), 2 * len(values))
    if place >= len(values) - 1:
        slope = (values[-1] - values[-1 - LAST_VALUES]) / LAST_VALUES
        return values[-1] + slope * (place - (len(values) - 1))
    before = int(place)
    return values[before] + (place - before) * (values[before + 1] - values[before])


def sudden(run: Run) -> Iterator[Deviation]:
    """A value far below all before it, or one that comes again to the last digit; neither happens in a published log.
    After a restart an evaluation may be made again, at the same tokens."""
    best: float | None = None
    seen: dict[float, tuple[int, float | None]] = {}
    for number, one in enumerate(run.evaluations, 1):
        value = one.log_perplexity
        if value is None:
            continue
        most = MOST_FALL[number > EARLY_EVALUATIONS]
        if run.rules.official and best is not None and value < best - most:
            found = f"eval_accuracy {value}: {best - value:.4f} below the best before"
            yield at(run, one, found, f"at most {most}")
        line, tokens = seen.setdefault(value, (one.line, one.tokens))
        if tokens != one.tokens:
            found = f"eval_accuracy {value}: the value of line {line} again"
            yield at(run, one, found, "a value of its own")
        best = value if best is None else min(best, value)
