"""The figures of a report as plain data: what ``template/figures.js`` draws."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from benchmark.report.step_speed import Speed
from benchmark.report.timeline import Timeline
from benchmark.results.recorded_events import RecordedEvent
from benchmark.results.recorded_run import RecordedRun
from benchmark.results.run_summary import Tracked

MOST_POINTS = 2000
"""Of one line; of more, the lowest and highest of each stretch are drawn."""
DIGITS = 7
LARGEST_DRAWN = 1e100
FENCE = 1000
"""Times the spread of the middle eight tenths: what lies farther off is told, not drawn."""
MOST_TOLD = 4
TOKENS = ("tokens since the checkpoint", "tokens")
MINUTES = ("minutes since run_start", "min")
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One run's line in a figure."""

    run: int
    x: Sequence[float]
    y: Sequence[float | None]
    """None: the line is broken there."""
    colour: int = 0
    dash: int = 0

    @property
    def values(self) -> list[float]:
        return [value for value in self.y if value is not None]


@dataclass(frozen=True)
class Mark:
    """Something that happened at ``x``."""

    run: int
    kind: str
    """evaluation, checkpoint or restart."""
    x: float


@dataclass(frozen=True)
class Band:
    """A stretch of the x axis."""

    low: float
    high: float
    label: str


@dataclass(frozen=True)
class Shade:
    """What other runs lie between, at each x."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Figure:
    """One figure: lines over a common x axis."""

    name: str
    title: str
    x_label: str
    x_unit: str
    y_label: str
    lines: Sequence[Line]
    dots: bool = False
    """Whether each value is a measurement of its own, to be marked."""
    from_zero: bool = False
    """Whether the y axis begins at 0."""
    target: float | None = None
    band: Band | None = None
    marks: Sequence[Mark] = field(default_factory=tuple)
    shade: Shade | None = None
    note: str = ""
    """What is not drawn."""
    family: str = ""
    """Of which figure this is a panel; empty: it is whole."""
    heading: str = ""
    """Title of the whole."""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    """Of all panels; None: that of the lines."""


def figures(
    runs: Sequence[RecordedRun], timelines: Sequence[Timeline], speeds: Sequence[Speed], band: Band | None
) -> list[Figure]:
    """The figures for which at least one run has values."""
    marks = _marks(runs, timelines)
    targets = {run.target for run in runs}
    found = [
        Figure(
            "accuracy",
            "Log perplexity of the validation set",
            *TOKENS,
            "nats per token",
            _lines(runs, _accuracy),
            dots=True,
            target=targets.pop() if len(targets) == 1 else None,
            band=band,
        ),
        Figure("loss", "Training loss", *TOKENS, "nats per token", _lines(runs, _loss)),
        Figure("learning_rate", "Learning rate", *TOKENS, "per update", _lines(runs, _field("learning_rate"))),
        Figure("grad_norm", "Gradient norm before clipping", *TOKENS, "L2 norm", _lines(runs, _field("grad_norm"))),
        Figure("step_time", "Step time", *MINUTES, "seconds", _lines(runs, _step_time), from_zero=True, marks=marks),
        _arithmetic(runs, speeds, marks),
    ]
    return [_with_gaps(within_fences(figure)) for figure in found if figure.lines]


def within_fences(figure: Figure) -> Figure:
    """The figure without values beside which all others would be one flat line, and a note of them."""
    xs = _fences([x for line in figure.lines for x in line.x])
    ys = _fences([y for line in figure.lines for y in line.values])
    lines, out = [], []
    for line in figure.lines:
        points = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
        kept = [(x, y) for x, y in points if xs[0] <= x <= xs[1] and ys[0] <= y <= ys[1]]
        out += [y if not ys[0] <= y <= ys[1] else x for x, y in points if (x, y) not in kept]
        if kept:
            lines.append(replace(line, x=[x for x, _ in kept], y=[y for _, y in kept]))
    if not out:
        return figure
    told = ", ".join(f"{value:.4g}" for value in out[:MOST_TOLD]) + (", …" if len(out) > MOST_TOLD else "")
    return replace(figure, lines=lines, note=f"Not drawn, far off all others: {told}.")


def _fences(values: Sequence[float]) -> tuple[float, float]:
    """What is drawn: within a thousand times the spread of most values, and of a size that can be computed with."""
    ordered = sorted(value for value in values if abs(value) < LARGEST_DRAWN)
    if not ordered:
        return 0.0, 0.0
    low, high = ordered[int(0.1 * len(ordered))], ordered[int(0.9 * (len(ordered) - 1))]
    room = FENCE * ((high - low) or abs(high) or 1.0)
    return max(low - room, -LARGEST_DRAWN), min(high + room, LARGEST_DRAWN)


def _with_gaps(figure: Figure) -> Figure:
    """No line goes through the time between an interrupted process and the restart."""
    restarts = [mark for mark in figure.marks if mark.kind == "restart"]
    lines = [_broken_at(line, [mark.x for mark in restarts if mark.run == line.run]) for line in figure.lines]
    return replace(figure, lines=lines)


def minutes(run: RecordedRun, time_ms: float) -> float | None:
    """Minutes from run_start to a time."""
    start = run.summary.run_start_ms
    return None if start is None else (time_ms - start) / 60_000


def kept_steps(events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    """The steps of a run without those that a restart, or a new beginning, threw away."""
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
    """At most about :data:`MOST_POINTS`: the lowest and the highest point of each stretch, in their order."""
    if len(points) <= MOST_POINTS:
        return points
    stretch = math.ceil(2 * len(points) / MOST_POINTS)
    kept: Points = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


def _lines(runs: Sequence[RecordedRun], points_of: Callable[[RecordedRun], Points]) -> list[Line]:
    lines = []
    for number, run in enumerate(runs):
        finite = [point for point in points_of(run) if all(map(math.isfinite, point))]
        if finite:
            points = thinned(sorted(finite))
            lines.append(Line(number, [_rounded(x) for x, _ in points], [_rounded(y, run.target) for _, y in points]))
    return lines


def _broken_at(line: Line, breaks: Sequence[float]) -> Line:
    """The line with a gap at each of ``breaks``."""
    values: list[tuple[float, float | None]] = list(zip(line.x, line.y, strict=True))
    values += [(place, None) for place in breaks if place not in line.x]
    values.sort(key=lambda value: value[0])
    return Line(line.run, [x for x, _ in values], [y for _, y in values])


def _rounded(value: float, target: float | None = None) -> float:
    """To a few digits, unless that would put it on the other side of the target."""
    if abs(value) >= 1e15 or value == int(value):
        return value
    rounded = float(f"{value:.{DIGITS}g}")
    return rounded if target is None or (rounded <= target) == (value <= target) else value


def _accuracy(run: RecordedRun) -> Points:
    return [
        (evaluation.tokens, evaluation.log_perplexity)
        for evaluation in run.summary.evaluations
        if evaluation.tokens is not None and evaluation.log_perplexity is not None
    ]


def _loss(run: RecordedRun) -> Points:
    return _field("loss")(run) or _of_tracked(run.summary.losses)


def _field(name: str) -> Callable[[RecordedRun], Points]:
    def points(run: RecordedRun) -> Points:
        found = [(step.number("trained_tokens"), step.number(name)) for step in kept_steps(run.events)]
        return [(x, y) for x, y in found if x is not None and y is not None]

    return points


def _of_tracked(tracked: Sequence[Tracked]) -> Points:
    return [(value.tokens, value.value) for value in tracked if value.tokens is not None]


def _over_time(run: RecordedRun, name: str) -> Points:
    """A field of every step, lost ones too, over the minutes of the clock."""
    found = [(minutes(run, event.time_ms), event.number(name)) for event in run.events if event.key == "step"]
    return [(x, y) for x, y in found if x is not None and y is not None]


def _step_time(run: RecordedRun) -> Points:
    logged = [(minutes(run, value.time_ms), value.value) for value in run.summary.step_seconds]
    return _over_time(run, "step_s") or [(x, y) for x, y in logged if x is not None]


def _arithmetic(runs: Sequence[RecordedRun], speeds: Sequence[Speed], marks: Sequence[Mark]) -> Figure:
    """MFU where the peak of every run's accelerators is known, else model FLOP/s."""
    by_path = {run.path: speed for run, speed in zip(runs, speeds, strict=True)}
    shares = all(speed.peak_tflops is not None for speed in speeds)

    def points(run: RecordedRun) -> Points:
        speed = by_path[run.path]
        if speed.tflop_per_step is None:
            return []
        scale = 100 / speed.peak_tflops if shares and speed.peak_tflops else 1.0
        return [(x, scale * speed.tflop_per_step / seconds) for x, seconds in _step_time(run) if seconds > 0]

    if shares:
        title, label = "Model FLOP/s utilisation (MFU) in training steps", "% of the BF16 peak"
    else:
        title, label = "Model FLOP/s in training steps", "TFLOP/s per device"
    name = "mfu" if shares else "tflops"
    return Figure(name, title, *MINUTES, label, _lines(runs, points), from_zero=True, marks=marks)


def _marks(runs: Sequence[RecordedRun], timelines: Sequence[Timeline]) -> list[Mark]:
    marks = []
    for number, (run, times) in enumerate(zip(runs, timelines, strict=True)):
        kinds = (("evaluation", times.evaluations), ("checkpoint", times.checkpoints), ("restart", times.restarts))
        for kind, all_ms in kinds:
            placed = [minutes(run, time_ms) for time_ms in all_ms]
            marks += [Mark(number, kind, _rounded(x)) for x in placed if x is not None]
    return marks
