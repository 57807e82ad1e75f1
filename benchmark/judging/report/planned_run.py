"""Compare a plan with a run: every planned figure, the measured one, and whether it lies in the plan's interval.

The plan is the JSON that ``python -m benchmark plan … --json`` prints, as a file.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.config.accelerators import accelerator_named
from benchmark.judging.report.judgement import ReportedRun
from benchmark.judging.report.page_parts import NOTHING, Cell, Row, Section, Table, Words, number
from benchmark.run_record.events.mllog import as_number
from benchmark.run_record.file_names import PLAN_FILE
from foundation.errors import InputError
from foundation.file_formats.json_files import read_json
from foundation.plain_text import shortened
from foundation.sizes import duration

MOST_BYTES = 32 << 20
MEMORY_DOUBT = 0.1
"""Relative range of planned memory, for which a plan has no interval."""
HEAD = ("Figure", "Planned", "Interval", "Measured", "Difference")


def _logged(run: ReportedRun, key: str, field: str) -> Sequence[float]:
    return run.recorded.events.of(key).present_numbers(field)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _step_s(run: ReportedRun) -> float | None:
    return _median(_logged(run, "step", "step_s") or [step.value for step in run.summary.step_seconds])


def _evaluation_s(run: ReportedRun) -> float | None:
    return _median([evaluation.seconds for evaluation in run.summary.evaluations if evaluation.seconds is not None])


def _run_s(run: ReportedRun) -> float | None:
    return None if run.summary.run_ms is None else run.summary.run_ms / 1000


def _peak_bytes(run: ReportedRun) -> float | None:
    return max((gib * 2**30 for gib in _logged(run, "step", "memory_gib")), default=None)


def _gib(value: float) -> str:
    return f"{value / 2**30:,.1f} GiB"


FIGURES: tuple[tuple[str, str, str, Callable[[ReportedRun], float | None], Callable[[float], str]], ...] = (
    ("step", "step_s", "intervals.step_s", _step_s, duration),
    ("evaluation", "evaluation_s", "intervals.evaluation_s", _evaluation_s, duration),
    ("run_start to run_stop", "run_s", "intervals.run_s", _run_s, duration),
    ("init", "costs.init_s", "costs.init_interval_s", lambda run: run.summary.init_s, duration),
    (
        "pause for a checkpoint",
        "costs.checkpoint.pause_s",
        "costs.checkpoint.pause_interval_s",
        lambda run: _median(_logged(run, "checkpoint", "seconds")),
        duration,
    ),
    ("memory of a device", "memory_bytes.peak", "", _peak_bytes, _gib),
)
"""Name of each figure, the places of the figure and of its interval in a plan, the function that measures it in a run,
and its format."""


def planned_section(runs: Sequence[ReportedRun], plan_path: Path | None) -> Section | None:
    """Compare the plan at a path, or the plan in the run's folder, with the measurements of one run.

    Raises InputError for a plan and several runs, and for a file that is no plan.
    """
    if plan_path is not None and len(runs) != 1:
        raise InputError(f"--plan is compared with one run, but there are {len(runs)}; report on one, or omit --plan")
    if plan_path is None and len(runs) == 1 and runs[0].recorded.config:
        default_path = runs[0].recorded.path.with_name(PLAN_FILE)
        plan_path = default_path if default_path.is_file() else None
    return None if plan_path is None else _section(read_plan(plan_path), runs[0])


def read_plan(path: Path) -> Mapping[str, Any]:
    """Read a plan. Raises InputError for a file that is no plan of one run."""
    expected = "give the output of `python -m benchmark plan … --json`; change --plan"
    if not path.is_file():
        raise InputError(f"{path}: no such file; {expected}")
    plan = read_json(path, dict, mend=expected, largest=MOST_BYTES)
    if not isinstance(plan.get("planned_for"), dict) or "step_s" not in plan:
        raise InputError(f"{path}: no plan of a run; {expected}")
    return plan


def _section(plan: Mapping[str, Any], run: ReportedRun) -> Section:
    planned_for = plan["planned_for"]
    system = shortened(str(planned_for.get("system") or planned_for.get("accelerator") or "?"), 60)
    batch = number(as_number(planned_for.get("global_batch_size")), "{:,.0f}")
    parts: list[Words | Table] = [
        Words(f"Planned for {system}, global batch size {batch}."),
        Table("Planned and measured", HEAD, list(_rows(plan, run)), numbers=(1, 2, 3, 4), look="planned cards"),
        *(Words(remark, quiet=True) for remark in _other_machine(planned_for, run)),
    ]
    step = list(_step_rows(plan))
    if step:
        summary = "The planned step, part by part"
        parts.append(Table("The planned step", (), step, numbers=(1, 2), look="", summary=summary))
    return Section("planned", "Planned and measured", parts)


def _rows(plan: Mapping[str, Any], run: ReportedRun) -> Iterator[Row]:
    """Yield the figures that both the plan and the run have."""
    for name, key, interval_place, measure, form in FIGURES:
        planned, measured, interval = as_number(_at(plan, key)), measure(run), _interval(plan, interval_place)
        if planned is None or measured is None or planned <= 0:
            continue
        if not interval_place:
            interval = (1 - MEMORY_DOUBT) * planned, (1 + MEMORY_DOUBT) * planned
        within = interval is not None and interval[0] <= measured <= interval[1]
        interval_text = NOTHING if interval is None else f"{form(interval[0])} to {form(interval[1])}"
        difference = Cell(f"{measured / planned - 1:+.1%}", kind="good" if within else "bad")
        yield Row([Cell(name), Cell(form(planned)), Cell(interval_text), Cell(form(measured)), difference])


def _at(plan: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key such as costs.init_s in a plan; None without one."""
    value: Any = plan
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _interval(plan: Mapping[str, Any], key: str) -> tuple[float, float] | None:
    value = _at(plan, key)
    low, high = map(as_number, value) if isinstance(value, list) and len(value) == 2 else (None, None)
    return None if low is None or high is None else (low, high)


def _step_rows(plan: Mapping[str, Any]) -> Iterator[Row]:
    parts, step_s = plan.get("parts"), as_number(plan.get("step_s"))
    for name, value in parts.items() if isinstance(parts, dict) else ():
        seconds = as_number(value)
        if seconds is not None and seconds > 0 and step_s:
            cells = (shortened(str(name).replace("_", " "), 40), duration(seconds), f"{seconds / step_s:.1%}")
            yield Row([Cell(text) for text in cells])


def _other_machine(planned_for: Mapping[str, Any], run: ReportedRun) -> Iterator[str]:
    system = run.recorded.config.get("system", {})
    accelerator = system.get("accelerator") or system.get("device")
    accelerator = accelerator or accelerator_named(run.score.accelerator or "") or run.score.accelerator
    for label, name, measured in (
        ("accelerator", "accelerator", accelerator),
        ("devices", "devices", run.score.accelerators),
        ("global batch size", "global_batch_size", run.summary.global_batch_size),
        ("precision", "precision", run.recorded.config.get("precision")),
    ):
        planned = planned_for.get(name)
        if planned is not None and measured is not None and planned != measured:
            planned_text, measured_text = (shortened(str(value), 60) for value in (planned, measured))
            yield f"Planned for {label} {planned_text}, ran with {measured_text}: the plan is of another run."
