"""Make the figures of a report as plain data, which ``template/figures.js`` draws."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmark.judging.report.judgement import COLOURS, ReportedRun
from benchmark.judging.report.page_parts import AxisMark, Band, Figure, Line, Points
from benchmark.judging.report.time_section import Timeline
from benchmark.judging.results.convergence import ReferencePoint, points_for, prune
from benchmark.judging.results.run_summary import RunSummary
from benchmark.run_record.recorded_events import RecordedEvent
from model.flops import train_flops_per_token

MOST_POINTS = 2000
"""Most points of one line; a longer line is drawn by the lowest and highest point of each stretch."""
DIGITS = 7
LARGEST_DRAWN = 1e100
TOKENS = ("tokens since the checkpoint", "tokens")
TOKENS_TRAINED = ("tokens trained", "tokens")
MINUTES = ("minutes since run_start", "min")


def figures(runs: Sequence[ReportedRun], timelines: Sequence[Timeline], ruleset: str) -> list[Figure]:
    """Return the figures for which at least one run has values."""
    marks = [AxisMark(n, kind, _rounded(x)) for n, times in enumerate(timelines) for kind, x in times.marks]
    targets = {run.recorded.target for run in runs}
    tokens = TOKENS if any(run.summary.rules.start_samples for run in runs) else TOKENS_TRAINED
    found = [
        Figure(
            "accuracy",
            "Log perplexity of the validation set",
            *tokens,
            "nats per token",
            _lines(runs, _accuracy),
            dots=True,
            target=targets.pop() if len(targets) == 1 else None,
            band=reference_band([run.summary for run in runs], ruleset),
        ),
        Figure("loss", "Training loss", *tokens, "nats per token", _lines(runs, _loss)),
        Figure("learning_rate", "Learning rate", *tokens, "per update", _lines(runs, _field("learning_rate"))),
        Figure("grad_norm", "Gradient norm before clipping", *tokens, "L2 norm", _lines(runs, _field("grad_norm"))),
        Figure("step_time", "Step time", *MINUTES, "seconds", _lines(runs, _step_time), from_zero=True, marks=marks),
        replace(_arithmetic(runs), from_zero=True, marks=marks),
    ]
    return [_with_gaps(figure) for figure in found if figure.lines]


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
    same = [point for point in points if point.batch_size == size]
    if same:
        return Band(*_span(same[0]), f"reference runs at batch size {size:g}")
    kept = prune(points)
    below = [point for point in kept if point.batch_size < size]
    above = [point for point in kept if point.batch_size > size]
    if not below or not above:
        return None
    share = (size - below[-1].batch_size) / (above[0].batch_size - below[-1].batch_size)
    low, high = (a + share * (b - a) for a, b in zip(_span(below[-1]), _span(above[0]), strict=True))
    return Band(low, high, f"reference runs, between {below[-1].batch_size:g} and {above[0].batch_size:g}")


def in_panels(whole: Sequence[Figure], groups: Sequence[int], names: Sequence[str]) -> list[Figure]:
    """Return the figures as they are while each group of runs has a colour; with more groups, return a panel per group,
    on one scale."""
    if len(set(groups)) <= COLOURS:
        return list(whole)
    return [panel for figure in whole for panel in _panels(figure, groups, names)]


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
    tokens = [one for one in point.tokens if one not in point.outliers]
    return min(tokens), max(tokens)


def _with_gaps(figure: Figure) -> Figure:
    """Break lines at restarts, so that none crosses the time between an interrupted process and the restart."""

    def broken(line: Line) -> Line:
        breaks = [(mark.x, None) for mark in figure.marks if mark.kind == "restart" and mark.run == line.run]
        values: list[tuple[float, float | None]] = [*line.points, *(one for one in breaks if one[0] not in line.x)]
        values.sort(key=lambda value: value[0])
        return Line(line.run, [x for x, _ in values], [y for _, y in values])

    return replace(figure, lines=[broken(line) for line in figure.lines])


def kept_steps(events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    """Return the steps of a run without those that a restart, or a new beginning, discarded."""
    steps: list[RecordedEvent] = []
    for event in events:
        if event.key == "step":
            steps.append(event)
        elif event.key == "run_start":
            steps = []
        elif event.key == "restart":
            tokens = event.number("step") or 0
            steps = [step for step in steps if (step.number("trained_tokens") or 0) <= tokens]
    return steps


def thinned(points: Points) -> Points:
    """Return at most about :data:`MOST_POINTS`: the lowest and the highest point of each stretch, in their order."""
    if len(points) <= MOST_POINTS:
        return points
    stretch = math.ceil(2 * len(points) / MOST_POINTS)
    parts = [points[start : start + stretch] for start in range(0, len(points), stretch)]
    ends = [{min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])} for part in parts]
    return [point for both in ends for point in sorted(both)]


def _lines(runs: Sequence[ReportedRun], points_of: Callable[[ReportedRun], Points]) -> list[Line]:
    lines = []
    for number, run in enumerate(runs):
        drawn = [point for point in points_of(run) if all(abs(value) < LARGEST_DRAWN for value in point)]
        if drawn:
            points = thinned(sorted(drawn))
            y = [_rounded(y, run.recorded.target) for _, y in points]
            lines.append(Line(number, [_rounded(x) for x, _ in points], y))
    return lines


def _rounded(value: float, target: float | None = None) -> float:
    """Return the value with a few digits, unless rounding would move it across the target."""
    if abs(value) >= 1e15 or value == int(value):
        return value
    rounded = float(f"{value:.{DIGITS}g}")
    return rounded if target is None or (rounded <= target) == (value <= target) else value


def _accuracy(run: ReportedRun) -> Points:
    found = [(one.tokens, one.log_perplexity) for one in run.summary.evaluations]
    return [(x, y) for x, y in found if x is not None and y is not None]


def _loss(run: ReportedRun) -> Points:
    logged = [(one.tokens, one.value) for one in run.summary.losses if one.tokens is not None]
    return _field("loss")(run) or logged


def _field(name: str) -> Callable[[ReportedRun], Points]:
    def points(run: ReportedRun) -> Points:
        found = [(step.number("trained_tokens"), step.number(name)) for step in kept_steps(run.recorded.events)]
        return [(x, y) for x, y in found if x is not None and y is not None]

    return points


def _step_time(run: ReportedRun) -> Points:
    """Return the seconds of every step, discarded ones too, over the minutes of the clock."""
    start = run.summary.run_start_ms
    if start is None:
        return []
    steps = [event for event in run.recorded.events if event.key == "step"]
    told = [(event.time_ms, event.number("step_s")) for event in steps]
    found = told if steps else [(one.time_ms, one.value) for one in run.summary.step_seconds]
    return [((time_ms - start) / 60_000, seconds) for time_ms, seconds in found if seconds is not None]


def _arithmetic(runs: Sequence[ReportedRun]) -> Figure:
    """Return MFU if the peak of every run's accelerators is known, else model FLOP/s."""
    shares = all(run.score.peak_tflops is not None for run in runs)

    def points(run: ReportedRun) -> Points:
        summary, count = run.summary, run.score.accelerators
        batch, length, judged = summary.global_batch_size, summary.sequence_length, summary.judged
        if not count or batch is None or length is None or judged is None:
            return []
        tflop = batch * length * train_flops_per_token(judged.model) / count / 1e12
        scale = 100 / run.score.peak_tflops if shares and run.score.peak_tflops else 1.0
        return [(x, scale * tflop / seconds) for x, seconds in _step_time(run) if seconds > 0]

    title, label = (
        ("Model FLOP/s utilisation (MFU) in training steps", "% of the BF16 peak")
        if shares
        else ("Model FLOP/s in training steps", "TFLOP/s per device")
    )
    return Figure("mfu" if shares else "tflops", title, *MINUTES, label, _lines(runs, points))
