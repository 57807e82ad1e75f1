"""Make the figures of a report as plain data, which ``template/figures.js`` draws."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy
import numpy.typing

from benchmark.judging.report.judgement import COLOURS, ReportedRun, progress_unit
from benchmark.judging.report.page_parts import AxisMark, Band, Figure, Line
from benchmark.judging.report.time_section import Timeline
from benchmark.judging.results.convergence import ReferencePoint, points_for, prune
from benchmark.judging.results.run_summary import RunSummary
from benchmark.run_record.events.recorded_events import RecordedEvents

MOST_POINTS = 2000
"""Most points of one line; a longer line is drawn by the lowest and highest point of each stretch."""
DIGITS = 7
LARGEST_DRAWN = 1e100
MINUTES = ("minutes since run_start", "min")
PlotValues = numpy.typing.NDArray[Any]


def figures(runs: Sequence[ReportedRun], timelines: Sequence[Timeline], ruleset: str) -> list[Figure]:
    """Return the figures for which at least one run has values."""
    marks = [AxisMark(n, kind, _rounded(x)) for n, times in enumerate(timelines) for kind, x in times.marks]
    targets = {run.recorded.target for run in runs}
    unit = progress_unit([run.summary for run in runs])
    from_checkpoint = all(run.summary.rules.start_samples for run in runs)
    progress = f"{unit.name} since the checkpoint" if from_checkpoint else f"{unit.name} trained", unit.name

    all_figures = [
        Figure(
            "accuracy",
            "Log perplexity of the validation set",
            *progress,
            "nats per token",
            _lines(runs, _accuracy, unit.tokens),
            dots=True,
            target=targets.pop() if len(targets) == 1 else None,
            band=_in_units(reference_band([run.summary for run in runs], ruleset), unit.tokens),
        ),
        Figure("loss", "Training loss", *progress, "nats per token", _lines(runs, _loss, unit.tokens)),
        Figure(
            "learning_rate",
            "Learning rate",
            *progress,
            "per update",
            _lines(runs, _field("learning_rate"), unit.tokens),
        ),
        Figure(
            "grad_norm",
            "Gradient norm before clipping",
            *progress,
            "L2 norm",
            _lines(runs, _field("grad_norm"), unit.tokens),
        ),
        Figure("step_time", "Step time", *MINUTES, "seconds", _lines(runs, _step_time), from_zero=True, marks=marks),
        replace(_arithmetic(runs), from_zero=True, marks=marks),
    ]
    return [_with_gaps(figure) for figure in all_figures if figure.lines]


def reference_band(runs: Sequence[RunSummary], ruleset: str) -> Band | None:
    """Return the band in which reference runs converge: from the fastest to the slowest at the runs' batch size.

    Between two reference points the ends are interpolated. Returns None if the runs differ in batch size or benchmark,
    or if no reference run is known. Reference runs that are no measurements (docs/facts/mlperf_review.md 5.10) are left
    out.
    """
    sizes = {(run.global_batch_size, run.judged) for run in runs}
    size, judged = next(iter(sizes)) if len(sizes) == 1 else (None, None)
    if size is None or judged is None or ruleset not in judged.rulesets:
        return None
    points = points_for(judged, ruleset)
    matching = [point for point in points if point.batch_size == size]
    if matching:
        return Band(*_span(matching[0]), f"reference runs at batch size {size:g}")
    pruned = prune(points)
    below = [point for point in pruned if point.batch_size < size]
    above = [point for point in pruned if point.batch_size > size]
    if not below or not above:
        return None
    share = (size - below[-1].batch_size) / (above[0].batch_size - below[-1].batch_size)
    low, high = (a + share * (b - a) for a, b in zip(_span(below[-1]), _span(above[0]), strict=True))
    return Band(low, high, f"reference runs, between {below[-1].batch_size:g} and {above[0].batch_size:g}")


def in_panels(figures: Sequence[Figure], groups: Sequence[int], names: Sequence[str]) -> list[Figure]:
    """Return the figures as they are while each group of runs has a colour; with more groups, return a panel per group,
    on one scale."""
    if len(set(groups)) <= COLOURS:
        return list(figures)
    return [panel for figure in figures for panel in _panels(figure, groups, names)]


def _panels(figure: Figure, groups: Sequence[int], names: Sequence[str]) -> list[Figure]:
    xs = [x for line in figure.lines for x in line.x]
    ys = [y for line in figure.lines for _, y in line.points]
    return [
        replace(
            figure,
            name=f"{figure.name}-{group}",
            family=figure.name,
            heading=figure.title,
            title=names[group],
            lines=lines,
            marks=[mark for mark in figure.marks if groups[mark.run] == group],
            x_range=(min(xs), max(xs)),
            y_range=(min(ys), max(ys)),
        )
        for group in dict.fromkeys(groups)
        if (lines := [line for line in figure.lines if groups[line.run] == group])
    ]


def _span(point: ReferencePoint) -> tuple[float, float]:
    tokens = [count for count in point.tokens if count not in point.outliers]
    return min(tokens), max(tokens)


def _with_gaps(figure: Figure) -> Figure:
    """Break lines at restarts, so that none crosses the time between an interrupted process and the restart."""

    def broken(line: Line) -> Line:
        breaks = [(mark.x, None) for mark in figure.marks if mark.kind == "restart" and mark.run == line.run]
        values: list[tuple[float, float | None]] = [
            *line.points,
            *(point for point in breaks if point[0] not in line.x),
        ]
        values.sort(key=lambda value: value[0])
        return Line(line.run, [x for x, _ in values], [y for _, y in values])

    return replace(figure, lines=[broken(line) for line in figure.lines])


def kept_steps(events: RecordedEvents) -> PlotValues:
    """Return which steps of a run were kept: True for each step that no later restart, or new beginning, discarded."""
    times = events.of("step", "run_start", "restart")
    tokens = numpy.nan_to_num(numpy.asarray(times.numbers("trained_tokens")))
    resumed_at = numpy.nan_to_num(numpy.asarray(times.numbers("step")))
    limits = numpy.full(len(times), math.inf)
    limits[times.are("run_start")] = -math.inf
    limits[times.are("restart")] = resumed_at[times.are("restart")]
    later_limits = numpy.minimum.accumulate(limits[::-1])[::-1]
    is_kept: PlotValues = tokens <= later_limits
    return is_kept[times.are("step")]


def thinned(x: PlotValues, y: PlotValues) -> tuple[PlotValues, PlotValues]:
    """Return at most about :data:`MOST_POINTS`: the lowest and the highest point of each stretch, in their order."""
    if len(x) <= MOST_POINTS:
        return x, y
    stretch = math.ceil(2 * len(x) / MOST_POINTS)
    indices: list[int] = []
    for start in range(0, len(x), stretch):
        part = y[start : start + stretch]
        indices += sorted({start + int(part.argmin()), start + int(part.argmax())})
    return x[indices], y[indices]


def _in_units(band: Band | None, tokens_per_unit: int) -> Band | None:
    return None if band is None else replace(band, low=band.low / tokens_per_unit, high=band.high / tokens_per_unit)


def _lines(
    runs: Sequence[ReportedRun], points_of: Callable[[ReportedRun], tuple[PlotValues, PlotValues]], x_scale: int = 1
) -> list[Line]:
    """Return the lines of the runs that have points; ``x_scale`` divides their x."""
    lines = []
    for number, run in enumerate(runs):
        x, y = points_of(run)
        x = x / x_scale
        is_drawn = (abs(x) < LARGEST_DRAWN) & (abs(y) < LARGEST_DRAWN)
        x, y = x[is_drawn], y[is_drawn]
        if len(x):
            order = numpy.lexsort((y, x))
            x, y = thinned(x[order], y[order])
            rounded = [_rounded(value, run.recorded.target) for value in y.tolist()]
            lines.append(Line(number, [_rounded(value) for value in x.tolist()], rounded))
    return lines


def _rounded(value: float, target: float | None = None) -> float:
    """Return the value with a few digits, unless rounding would move it across the target."""
    if abs(value) >= 1e15:
        return value
    if value == int(value):
        return int(value)
    rounded = float(f"{value:.{DIGITS}g}")
    return rounded if target is None or (rounded <= target) == (value <= target) else value


def _points(pairs: Iterable[tuple[float | None, float | None]]) -> tuple[PlotValues, PlotValues]:
    """Return the points that have both numbers."""
    complete = [(x, y) for x, y in pairs if x is not None and y is not None]
    points: PlotValues = numpy.array(complete, dtype=float).reshape(-1, 2)
    return points[:, 0], points[:, 1]


def _accuracy(run: ReportedRun) -> tuple[PlotValues, PlotValues]:
    return _points((evaluation.tokens, evaluation.log_perplexity) for evaluation in run.summary.evaluations)


def _loss(run: ReportedRun) -> tuple[PlotValues, PlotValues]:
    x, y = _field("loss")(run)
    return (x, y) if len(x) else _points((loss.tokens, loss.value) for loss in run.summary.losses)


def _field(name: str) -> Callable[[ReportedRun], tuple[PlotValues, PlotValues]]:
    def points(run: ReportedRun) -> tuple[PlotValues, PlotValues]:
        steps, is_kept = run.recorded.events.of("step"), kept_steps(run.recorded.events)
        x, y = (numpy.asarray(steps.numbers(field))[is_kept] for field in ("trained_tokens", name))
        has_both = ~(numpy.isnan(x) | numpy.isnan(y))
        return x[has_both], y[has_both]

    return points


def _step_time(run: ReportedRun) -> tuple[PlotValues, PlotValues]:
    """Return the seconds of every step, discarded ones too, over the minutes of the clock."""
    start_ms, steps = run.summary.run_start_ms, run.recorded.events.of("step")
    if start_ms is None:
        return _points(())
    if not steps:
        return _points(((step.time_ms - start_ms) / 60_000, step.value) for step in run.summary.step_seconds)
    minutes, seconds = (numpy.asarray(steps.times_ms) - start_ms) / 60_000, numpy.asarray(steps.numbers("step_s"))
    is_timed = ~numpy.isnan(seconds)
    return minutes[is_timed], seconds[is_timed]


def _arithmetic(runs: Sequence[ReportedRun]) -> Figure:
    """Return MFU if the peak of every run's accelerators is known, else model FLOP/s."""
    shares = all(run.score.peak_tflops is not None for run in runs)
    formats = dict.fromkeys(run.score.peak_format for run in runs)

    def points(run: ReportedRun) -> tuple[PlotValues, PlotValues]:
        summary, count = run.summary, run.score.accelerators
        batch, length, judged = summary.global_batch_size, summary.sequence_length, summary.judged
        if not count or batch is None or length is None or judged is None:
            return _points(())
        tflop = batch * length * judged.flops_per_token / count / 1e12
        scale = 100 / run.score.peak_tflops if shares and run.score.peak_tflops else 1.0
        minutes, seconds = _step_time(run)
        timed = seconds > 0
        return minutes[timed], scale * tflop / seconds[timed]

    title, label = (
        ("Model FLOP/s utilisation (MFU) in training steps", f"% of the {' or '.join(formats)} peak")
        if shares
        else ("Model FLOP/s in training steps", "TFLOP/s per device")
    )
    return Figure("mfu" if shares else "tflops", title, *MINUTES, label, _lines(runs, points))
