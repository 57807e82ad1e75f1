"""Compute the differences of accuracy curves from the mean of published runs: in a figure, the curves themselves cannot
be distinguished."""

from collections.abc import Sequence

import numpy
import pandas

from benchmark.judging.report.page_parts import Figure, Line, Shade
from benchmark.judging.results.frames import published_frame
from benchmark.judging.results.judged import GPT3, Judged
from benchmark.judging.results.run_summary import RunSummary

LEAST_PUBLISHED = 3
OUTSIDE = 0.05
"""Share of the published curves outside the shade, above and below: a few have spikes."""
DIGITS = 6


def differences(accuracy: Figure, runs: Sequence[RunSummary]) -> Figure | None:
    """Return each line of ``accuracy`` minus the mean of the published runs at the same batch size.

    Returns None if the runs differ in batch size or benchmark, or if hardly any run was published.
    """
    kinds = {(run.global_batch_size, run.rules.name) for run in runs}
    size = runs[0].global_batch_size if len(kinds) == 1 else None
    if size is None or runs[0].rules.published is None:
        return None
    curves = published_curves(size, runs[0].rules)
    if curves.shape[1] < LEAST_PUBLISHED:
        return None
    mean = curves.mean(axis=1)[2 * curves.count(axis=1) >= curves.shape[1]]
    lines = [difference for line in accuracy.lines if (difference := _minus(line, mean)) is not None]
    if len(mean) < 2 or not lines:
        return None
    return Figure(
        "difference",
        f"Difference of log perplexity to the mean of the {curves.shape[1]} published runs at batch size {size:,.0f}",
        accuracy.x_label,
        accuracy.x_unit,
        "nats per token",
        lines,
        dots=True,
        shade=_shade(curves, mean),
        note="Grey: nine of ten published runs.",
    )


def published_curves(batch_size: float, judged: Judged = GPT3) -> pandas.DataFrame:
    """Return the log perplexity of the published runs at a batch size: a row per number of tokens, a column per run."""
    frame = published_frame(judged)
    curves = [
        pandas.Series([float(number) for number in values.split()], index=[float(number) for number in tokens.split()])
        for tokens, values in frame.loc[
            frame["global_batch_size"] == batch_size, ["evaluation_tokens", "evaluation_values"]
        ].itertuples(index=False)
    ]
    return pandas.concat(curves, axis=1).sort_index() if curves else pandas.DataFrame()


def _minus(line: Line, mean: "pandas.Series[float]") -> Line | None:
    """Return the line less the mean, which is interpolated between its points; nothing beyond the mean's ends."""
    mean_tokens = mean.index.to_numpy()
    points = [(x, y) for x, y in line.points if mean_tokens[0] <= x <= mean_tokens[-1]]
    if not points:
        return None
    at = numpy.interp([x for x, _ in points], mean_tokens, mean.to_numpy())
    return Line(
        line.run,
        [x for x, _ in points],
        [round(float(y - mean_value), DIGITS) for (_, y), mean_value in zip(points, at, strict=True)],
    )


def _shade(curves: pandas.DataFrame, mean: "pandas.Series[float]") -> Shade:
    """Return the range of nine of ten curves at each of the mean's tokens; each curve is interpolated between its
    points."""
    filled = curves.interpolate(method="index", limit_area="inside").loc[mean.index].sub(mean, axis=0)
    low, high = (filled.quantile(share, axis=1, interpolation="nearest") for share in (OUTSIDE, 1 - OUTSIDE))
    return Shade(list(mean.index), low.round(DIGITS).tolist(), high.round(DIGITS).tolist())
