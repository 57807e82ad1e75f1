"""The envelope of accepted accuracy curves: how far a run lies from the published ones of its batch size.

Distances are from the median curve (benchmark/config/reference_curves.py), between two batch sizes from what lies
between their curves, in standard deviations of the 117 distinct published logs (docs/facts/mlperf_review.md 6.9).
Closed division of gpt3 only.
"""

import bisect
import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmark.config.reference_curves import REFERENCE_CURVES, ReferenceCurve
from benchmark.results.judged import GPT3
from benchmark.review.findings import Deviation, Run

CURVES = REFERENCE_CURVES["gpt3_175b"]
LAST_VALUES = 6
"""Of a curve, by which it goes on where a run is longer."""
FEWEST_VALUES = 6
SMOOTHEST = 1.2e-4
"""Spread of third differences, from the fifth value on, by their median: so neither the curve's own bend nor one spike
counts; published: at least 2.2e-4."""
SMOOTH_VALUES = 12
EVENEST_MS = 1.0
"""Standard deviation of the times between evaluations; published: at least 5.5 ms."""
EVEN_INTERVALS = 10
FEWEST_DECIMALS = 6
"""Published values have at least 11."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution by the median of its absolute values."""
LUCKY = 8.0
"""By which the last value is below those before it, in median changes of the eight before; published: 5.7 after a
spike, else at most 2.6."""
LEAST_CHANGE = 2e-4
JUST_MET = 1e-6
"""Of the target; published: at least 9e-6. A value falls so near by chance in one of a thousand runs."""
SAME_REST = 1e-7


@dataclass(frozen=True)
class Feature:
    """A number of a curve's distance from the reference: its spread, and how far is far."""

    words: str
    deviation: float
    """Standard deviation of the published runs."""
    question: float
    """Distance in deviations, either way."""
    error_below: float
    """Better than any honest run …"""
    error_above: float


FIRST = Feature("the first value", 1.3e-3, 4, 10, 10)  # published: at most 2.5 deviations
LEVEL = Feature("the middle of all values after the second", 6.2e-4, 5, 9, float("inf"))  # 3.8
SLOPE = Feature("the change from the second quarter to the last third", 6.7e-4, 7, 14, float("inf"))  # 5.7
LAST = Feature("the last value", 6.9e-4, 5, 12, float("inf"))  # 3.1


def outside_envelope(run: Run) -> Iterator[Deviation]:
    yield from _distances(run, error=True)


def far_from_envelope(run: Run) -> Iterator[Deviation]:
    yield from _distances(run, error=False)


def _distances(run: Run, error: bool) -> Iterator[Deviation]:
    for feature, line, distance, at_distance in features(run):
        sigmas = distance / feature.deviation
        wrong = sigmas < -feature.error_below or sigmas > feature.error_above
        if wrong == error and (wrong or abs(sigmas) > feature.question):
            side = f"{'below' if sigmas < 0 else 'above'} published runs"
            found = f"{feature.words} {at_distance}: {abs(sigmas):.1f} standard deviations {side}"
            due = f"within {feature.question:g} of the median curve at batch size {run.global_batch_size:g}"
            mend = "check weights, data, schedule and evaluation; show loss curves beside the reference's"
            yield Deviation(run.log.path, line, found, due, mend)


def features(run: Run) -> Iterator[tuple[Feature, int, float, str]]:
    """Feature, line, distance in nats, and the value in words."""
    size = run.global_batch_size
    if size is None or run.division == "open" or not (run.judged or GPT3).official:
        return
    known = [
        (one.line, one.log_perplexity, one.log_perplexity - expected(size, one.tokens))
        for one in run.evaluations
        if one.log_perplexity is not None and one.tokens is not None
    ]
    if not known:
        return
    rest = [distance for *_, distance in known]
    line, value, distance = known[0]
    yield FIRST, line, distance, f"{value:.4f}"
    if len(known) < FEWEST_VALUES:
        return
    line, value, distance = known[-1]
    level = statistics.median(rest[2:])
    yield LEVEL, line, level, f"{level:+.4f} from the curve"
    count = len(rest)
    slope = statistics.median(rest[-count // 3 :]) - statistics.median(rest[count // 4 : count // 2])
    yield SLOPE, line, slope, f"{slope:+.4f} beside the curve's"
    yield LAST, line, distance, f"{value:.4f}"


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


def too_smooth(run: Run) -> Iterator[Deviation]:
    values = _values(run)
    if len(values) < SMOOTH_VALUES or not (run.judged or GPT3).official:
        return
    later = values[4:]
    bends = [later[k + 3] - 3 * later[k + 2] + 3 * later[k + 1] - later[k] for k in range(len(later) - 3)]
    spread = min(statistics.pstdev(bends), NORMAL * statistics.median(map(abs, bends)))
    if spread < SMOOTHEST:
        found = f"a curve without the noise of training: third differences of {spread:.1e}"
        mend = "show the evaluations of the run as the code printed them"
        yield Deviation(run.log.path, run.evaluations[-1].line, found, f"at least {SMOOTHEST:.0e}", mend)


def too_even(run: Run) -> Iterator[Deviation]:
    times = [one.time_ms for one in run.evaluations]
    intervals = [after - before for before, after in itertools.pairwise(times)]
    if len(intervals) >= EVEN_INTERVALS and (run.judged or GPT3).official and statistics.median(intervals) > 1000:
        spread = statistics.pstdev(intervals)
        if spread < EVENEST_MS:
            found = f"{len(intervals)} blocks of {statistics.median(intervals) / 1000:,.3f} s, each to {spread:.2f} ms"
            mend = "show the job's own log: no machine is so even"
            yield Deviation(run.log.path, run.evaluations[-1].line, found, f"at least {EVENEST_MS:g} ms", mend)


def lucky_end(run: Run) -> Iterator[Deviation]:
    """The target met by one value far below the curve so far."""
    size = run.global_batch_size
    known = [one for one in run.evaluations if one.log_perplexity is not None and one.tokens is not None]
    if size is None or len(known) < SMOOTH_VALUES or run.reached is None or not (run.judged or GPT3).official:
        return
    rest = [(one.log_perplexity or 0) - expected(size, one.tokens or 0) for one in known[-9:]]
    changes = [abs(after - before) for before, after in itertools.pairwise(rest[:-1])]
    usual = max(NORMAL * statistics.median(changes), LEAST_CHANGE)
    fall = statistics.median(rest[-5:-1]) - rest[-1]
    if fall > LUCKY * usual:
        found = f"the last value {fall:.4f} below the curve so far, {fall / usual:.1f} times what values change by"
        mend = "show what was evaluated there, and that it was the whole subset with the run's own weights"
        yield Deviation(run.log.path, known[-1].line, found, f"at most {LUCKY:g} times", mend)


def just_met(run: Run) -> Iterator[Deviation]:
    judged = run.judged or GPT3
    value = None if run.reached is None else run.reached.log_perplexity
    if run.reached is not None and value is not None and judged.official and judged.target - value < JUST_MET:
        found = f"eval_accuracy {value!r}, {judged.target - value:.1e} below the target"
        mend = "show the value as the code printed it"
        yield Deviation(run.log.path, run.reached.line, found, "a value met by chance", mend)


def rounded(run: Run) -> Iterator[Deviation]:
    """Also where something was added to rounded values: then all have one rest."""
    values = _values(run)
    unit = 10.0 ** (1 - FEWEST_DECIMALS)
    rests = [(value - values[0]) / unit for value in values]
    if len(values) >= FEWEST_VALUES and all(abs(rest - round(rest)) * unit < SAME_REST for rest in rests):
        found = f"values of fewer than {FEWEST_DECIMALS} decimals, but for what all have in common"
        mend = "log the number as it was computed: rounded ones hide what runs have in common"
        yield Deviation(run.log.path, run.evaluations[0].line, found, "values as computed", mend)


def _values(run: Run) -> Sequence[float]:
    return [one.log_perplexity for one in run.evaluations if one.log_perplexity is not None]
