"""Accuracy curves lie so close that only their differences can be seen: each run's, to the mean of others."""

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.report.figures import TOKENS, Figure, Line, Shade
from benchmark.results.judged import GPT3
from benchmark.results.published_runs import published_systems
from benchmark.results.run_summary import RunSummary

Curve = Sequence[tuple[float, float]]
"""Tokens and log perplexity, by tokens."""
LEAST_PUBLISHED = 3
OUTSIDE = 0.05
"""Share of the published curves that is left out above and below the shade."""


@dataclass(frozen=True)
class Baseline:
    """What curves are compared with."""

    curves: Sequence[Curve]
    words: str

    @property
    def mean(self) -> Curve:
        """At the tokens that at least half of the curves have."""
        found: dict[float, list[float]] = {}
        for curve in self.curves:
            for tokens, value in curve:
                found.setdefault(tokens, []).append(value)
        kept = {tokens: values for tokens, values in found.items() if 2 * len(values) >= len(self.curves)}
        return [(tokens, statistics.fmean(values)) for tokens, values in sorted(kept.items())]


def differences(
    accuracy: Figure, runs: Sequence[RunSummary], systems: Sequence[int], names: Sequence[str]
) -> Figure | None:
    """Each line of ``accuracy`` minus the mean of the published runs at the same batch size, or else, where there are
    several systems, of the first one's runs; None where there is neither.

    ``systems`` says of each run which of ``names`` it belongs to.
    """
    published = _published(runs)
    baseline = published or _first_system(accuracy, systems, names)
    if baseline is None:
        return None
    mean = baseline.mean
    lines = [one for line in accuracy.lines if (one := _minus(line, mean)) is not None]
    if len(mean) < 2 or not lines:
        return None
    return Figure(
        "difference",
        f"Difference of log perplexity to the mean of {baseline.words}",
        *TOKENS,
        "nats per token",
        lines,
        dots=True,
        shade=None if published is None else _shade(published.curves, mean),
        note="" if published is None else "Grey: nine of ten published runs.",
    )


def _published(runs: Sequence[RunSummary]) -> Baseline | None:
    """The published runs at the batch size of all runs."""
    sizes = {run.global_batch_size for run in runs}
    if len(sizes) != 1 or any(run.judged is not GPT3 for run in runs):
        return None
    size = sizes.pop()
    curves = [run.evaluations for system in published_systems() for run in system.runs if run.batch_size == size]
    if len(curves) < LEAST_PUBLISHED or size is None:
        return None
    return Baseline(curves, f"the {len(curves)} published runs at batch size {size:,.0f}")


def _first_system(accuracy: Figure, systems: Sequence[int], names: Sequence[str]) -> Baseline | None:
    if len(set(systems)) < 2:
        return None
    mine = [line for line in accuracy.lines if systems[line.run] == systems[0]]
    curves = [[(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None] for line in mine]
    return Baseline(curves, names[systems[0]]) if curves else None


def _minus(line: Line, mean: Curve) -> Line | None:
    points = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
    kept = [(x, y - at) for x, y in points if (at := value_at(mean, x)) is not None]
    return Line(line.run, [x for x, _ in kept], [round(y, 6) for _, y in kept]) if kept else None


def _shade(curves: Sequence[Curve], mean: Curve) -> Shade:
    """What nine of ten curves lie between at each of the mean's tokens: a few have spikes of their own."""
    at = [sorted(value - middle for curve in curves if (value := value_at(curve, x)) is not None) for x, middle in mean]
    out = [round(OUTSIDE * (len(one) - 1)) for one in at]
    low = [round(one[place], 6) for one, place in zip(at, out, strict=True)]
    high = [round(one[-1 - place], 6) for one, place in zip(at, out, strict=True)]
    return Shade([x for x, _ in mean], low, high)


def value_at(curve: Curve, x: float) -> float | None:
    """On the straight line between two points; None beyond the ends."""
    place = bisect_right(curve, (x, float("inf")))
    if place and curve[place - 1][0] == x:
        return curve[place - 1][1]
    if place in (0, len(curve)):
        return None
    (x0, y0), (x1, y1) = curve[place - 1], curve[place]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
