"""A plan beside what a run measured: every planned figure, what it came to, whether that lies in the plan's interval.

The plan is the JSON that ``python -m benchmark plan … --json`` prints, as a file.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.config.accelerators import accelerator_named
from benchmark.report.page_parts import NOTHING, Cell, Row, Section, Table, Words, number
from benchmark.report.reported_run import ReportedRun
from benchmark.results.durations import duration
from benchmark.results.printable import shortened
from benchmark.results.result_log import as_number
from stage.errors import InputError
from stage.json_files import read_json

PLAN_FILE = "plan.json"
"""Looked for in the folder of a run where no plan is given."""
MOST_BYTES = 32 << 20
WORTH_NAMING = 0.2
"""Share of a difference that a part of the step is named for."""
MEMORY_DOUBT = 0.1
HEAD = ("Figure", "Planned", "Interval", "Measured", "Difference")
LIKELY_CAUSES = (
    ("matmul", "matrix products run below their rate"),
    ("tensor_messages", "tensor-parallel messages are hidden less"),
    ("host", "the host launches too slowly"),
    ("bubble", "stages are uneven, or wait for messages between them"),
    ("data_messages", "gradients or parameters travel longer than computation hides"),
    ("jitter", "one device is slow: all wait for it"),
)
"""Parts of a planned step, and why one may take longer."""


@dataclass(frozen=True)
class PlannedFigure:
    """Where one figure stands in a plan, and how a run measured it."""

    name: str
    planned: Callable[[Mapping[str, Any]], float | None]
    interval: Callable[[Mapping[str, Any]], Any]
    measured: Callable[[ReportedRun], float | None]
    form: Callable[[float], str]


def _at(*names: str) -> Callable[[Mapping[str, Any]], Any]:
    def value(plan: Mapping[str, Any]) -> Any:
        found: Any = plan
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    return value


def _figure_at(*names: str) -> Callable[[Mapping[str, Any]], float | None]:
    found = _at(*names)
    return lambda plan: as_number(found(plan))


def _memory_interval(plan: Mapping[str, Any]) -> Any:
    peak = as_number(_at("memory_bytes", "peak")(plan))
    return None if peak is None else [(1 - MEMORY_DOUBT) * peak, (1 + MEMORY_DOUBT) * peak]


def _median_of(run: ReportedRun, key: str, field: str) -> float | None:
    found = [event.number(field) for event in run.recorded.events if event.key == key]
    return _median([value for value in found if value is not None])


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _peak_memory(run: ReportedRun) -> float | None:
    found = [event.number("memory_gib") for event in run.recorded.events if event.key == "step"]
    values = [value for value in found if value is not None]
    return max(values) * 2**30 if values else None


def _run_s(run: ReportedRun) -> float | None:
    return None if run.summary.run_ms is None else run.summary.run_ms / 1000


def _step_s(run: ReportedRun) -> float | None:
    return _median_of(run, "step", "step_s") or _median([one.value for one in run.summary.step_seconds])


def _gib(value: float) -> str:
    return f"{value / 2**30:,.1f} GiB"


FIGURES = (
    PlannedFigure("step", _figure_at("step_s"), _at("intervals", "step_s"), _step_s, duration),
    PlannedFigure(
        "evaluation", _figure_at("evaluation_s"), _at("intervals", "evaluation_s"),
        lambda run: _median([one.seconds for one in run.summary.evaluations if one.seconds is not None]), duration,
    ),
    PlannedFigure("run_start to run_stop", _figure_at("run_s"), _at("intervals", "run_s"), _run_s, duration),
    PlannedFigure(
        "init", _figure_at("costs", "init_s"), _at("costs", "init_interval_s"),
        lambda run: run.summary.init_s, duration,
    ),
    PlannedFigure(
        "pause for a checkpoint", _figure_at("costs", "checkpoint", "pause_s"),
        _at("costs", "checkpoint", "pause_interval_s"), lambda run: _median_of(run, "checkpoint", "seconds"), duration,
    ),
    PlannedFigure("memory of a device", _figure_at("memory_bytes", "peak"), _memory_interval, _peak_memory, _gib),
)  # fmt: skip


def read_plan(path: Path) -> Mapping[str, Any]:
    """Raises InputError for a file that is no plan of one run."""
    due = "give what `python -m benchmark plan … --json` prints; change --plan"
    if not path.is_file():
        raise InputError(f"{path}: no such file; {due}")
    plan = read_json(path, dict, mend=due, largest=MOST_BYTES)
    if not isinstance(plan.get("planned_for"), dict) or "step_s" not in plan:
        raise InputError(f"{path}: no plan of a run; {due}")
    return plan


def planned_section(runs: Sequence[ReportedRun], given: Path | None) -> Section | None:
    """Return the plan that is given, or that in the folder of the run, beside what one run measured.

    Raises InputError for a plan beside several runs, and for a file that is no plan.
    """
    if given is not None and len(runs) != 1:
        raise InputError(f"--plan is put beside one run, there are {len(runs)}; report on one, or leave --plan out")
    if given is None and len(runs) == 1 and runs[0].recorded.config:
        beside = runs[0].recorded.path.with_name(PLAN_FILE)
        given = beside if beside.is_file() else None
    return None if given is None else _section(read_plan(given), runs[0])


def _section(plan: Mapping[str, Any], run: ReportedRun) -> Section:
    """The figures that both have, the planned parts of the step, and remarks: another run, where a difference is."""
    planned_for = plan["planned_for"]
    system = shortened(str(planned_for.get("system") or planned_for.get("accelerator") or "?"), 60)
    batch = number(as_number(planned_for.get("global_batch_size")), "{:,.0f}")
    rows = [row for figure in FIGURES if (row := _row(figure, plan, run)) is not None]
    parts: list[Words | Table] = [
        Words(f"Planned for {system}, global batch size {batch}."),
        Table("Planned and measured", HEAD, rows, numbers=(1, 2, 3, 4), look="planned cards"),
        *(Words(remark, quiet=True) for remark in (*_other_machine(planned_for, run), *_causes(plan, run))),
    ]
    step = [Row([Cell(text) for text in part]) for part in _parts(plan)]
    if step:
        summary = "The planned step, part by part"
        parts.append(Table("The planned step", (), step, numbers=(1, 2), look="", summary=summary))
    return Section("planned", "Planned and measured", parts)


def _row(figure: PlannedFigure, plan: Mapping[str, Any], run: ReportedRun) -> Row | None:
    planned, measured, interval = figure.planned(plan), figure.measured(run), _interval(figure.interval(plan))
    if planned is None or measured is None or planned <= 0:
        return None
    within = interval is not None and interval[0] <= measured <= interval[1]
    told = NOTHING if interval is None else f"{figure.form(interval[0])} to {figure.form(interval[1])}"
    texts = (figure.name, figure.form(planned), told, figure.form(measured))
    difference = Cell(f"{measured / planned - 1:+.1%}", kind="good" if within else "bad")
    return Row([*map(Cell, texts), difference])


def _interval(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    low, high = map(as_number, value)
    return None if low is None or high is None else (low, high)


def _parts(plan: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    parts = plan.get("parts")
    step_s = as_number(plan.get("step_s"))
    for name, value in parts.items() if isinstance(parts, dict) and step_s else ():
        seconds = as_number(value)
        if seconds is not None and seconds > 0 and step_s:
            yield shortened(str(name).replace("_", " "), 40), duration(seconds), f"{seconds / step_s:.1%}"


def _other_machine(planned_for: Mapping[str, Any], run: ReportedRun) -> Iterator[str]:
    system = run.recorded.config.get("system", {})
    accelerator = system.get("accelerator") or system.get("device")
    accelerator = accelerator or accelerator_named(run.score.accelerator or "") or run.score.accelerator
    summary = run.summary
    for what, planned, measured in (
        ("accelerator", planned_for.get("accelerator"), accelerator),
        ("devices", planned_for.get("devices"), run.score.accelerators),
        ("global batch size", planned_for.get("global_batch_size"), summary.global_batch_size),
        ("precision", planned_for.get("precision"), run.recorded.config.get("precision")),
    ):
        if planned is not None and measured is not None and planned != measured:
            one, other = (shortened(str(value), 60) for value in (planned, measured))
            yield f"Planned for {what} {one}, ran with {other}: the plan is of another run."


def _causes(plan: Mapping[str, Any], run: ReportedRun) -> Iterator[str]:
    """Where a step longer than planned may have lost it: the parts large enough to hold a good share of it."""
    planned, measured = as_number(plan.get("step_s")), _step_s(run)
    interval = _interval(_at("intervals", "step_s")(plan))
    if planned is None or measured is None or interval is None or measured <= interval[1]:
        return
    late_s = measured - planned
    yield f"A step takes {duration(late_s)} more than planned; to see in which part: --profile, and slice."
    for part, cause in LIKELY_CAUSES:
        seconds = as_number(_at("parts", part)(plan))
        if seconds is not None and seconds > WORTH_NAMING * late_s:
            yield f"{part.replace('_', ' ').capitalize()}, planned {duration(seconds)}: more if {cause}."
