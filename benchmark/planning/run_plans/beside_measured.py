"""A plan beside what a run measured: every planned figure, what it came to, and whether that lies in the interval."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.planning.run_plans.run_costs import Interval
from benchmark.planning.run_plans.run_plan import RunPlan

LIKELY_CAUSES = (
    ("tensor_messages", "tensor-parallel messages are hidden less than planned"),
    ("host", "the host launches too slowly"),
    ("bubble", "stages are uneven, or wait for messages between them"),
    ("data_messages", "gradients or parameters travel longer than computation hides"),
    ("jitter", "one device is slow: all wait for it"),
)
"""Where a step that is longer than planned may have lost it, beside products that run below their rate."""
HOST_BOUND, WORTH_NAMING = 0.9, 0.2
"""Shares: of the step that is the host's when it is what others wait for; of a difference that a part is named for."""


@dataclass(frozen=True)
class MeasuredRun:
    """What a run's logs tell; None where they do not."""

    accelerator: str | None
    devices: int | None
    step_s: float | None
    """Median."""
    evaluation_s: float | None
    run_s: float | None
    """run_start to run_stop."""
    init_s: float | None
    peak_memory_bytes: float | None
    host_s_per_step: float | None = None


@dataclass(frozen=True)
class PlannedAndMeasured:
    """A line of the comparison; seconds or bytes."""

    figure: str
    planned: float
    interval: Interval
    measured: float
    note: str

    @property
    def ratio(self) -> float:
        return self.measured / self.planned

    @property
    def within(self) -> bool:
        return self.interval[0] <= self.measured <= self.interval[1]


def beside_measured(
    plan: RunPlan, *, planned_accelerator: str, planned_devices: int, run: MeasuredRun
) -> tuple[list[PlannedAndMeasured], list[str]]:
    """Lines of figures that both have, and remarks: another machine than planned, where a difference may be."""
    lines = list(_lines(plan, run))
    remarks = []
    for what, planned, measured in (
        ("accelerator", planned_accelerator, run.accelerator),
        ("devices", planned_devices, run.devices),
    ):
        if measured is not None and measured != planned:
            remarks.append(f"planned for {what} {planned}, ran on {measured}: the plan is of another machine")
    step = next((line for line in lines if line.figure == "step"), None)
    if step is not None and step.measured > step.interval[1]:
        remarks += list(_causes(plan, step, run))
    return lines, remarks


def _lines(plan: RunPlan, run: MeasuredRun) -> Iterator[PlannedAndMeasured]:
    init_s = None if plan.costs is None else plan.costs.init_s
    init_interval = (0.0, 0.0) if plan.costs is None else plan.costs.init_interval_s
    memory = plan.memory_bytes.get("peak")
    for figure, planned, interval, measured in (
        ("step", plan.step_s, plan.intervals.get("step_s"), run.step_s),
        ("evaluation", plan.evaluation_s, plan.intervals.get("evaluation_s"), run.evaluation_s),
        ("run", plan.run_s, plan.intervals.get("run_s"), run.run_s),
        ("init", init_s, init_interval, run.init_s),
        ("memory", memory, None if memory is None else (0.9 * memory, 1.1 * memory), run.peak_memory_bytes),
    ):
        if planned is None or interval is None or measured is None or planned <= 0:
            continue
        inside = interval[0] <= measured <= interval[1]
        note = "as planned" if inside else f"{measured / planned - 1:+.1%}"
        yield PlannedAndMeasured(figure, planned, interval, measured, note)


def _causes(plan: RunPlan, step: PlannedAndMeasured, run: MeasuredRun) -> Iterator[str]:
    """The host where it is known to be, else the parts that are large enough to hold a good part of the difference."""
    late_s = step.measured - step.planned
    if run.host_s_per_step is not None and run.host_s_per_step > HOST_BOUND * step.measured:
        yield f"the host takes {run.host_s_per_step:.2f} s of a step of {step.measured:.2f} s: everything waits for it"
        return
    yield f"{late_s:.2f} s a step more than planned: trace it (--profile), and measure this device's rates (slice)"
    if plan.parts is not None:
        for part, cause in LIKELY_CAUSES:
            seconds = getattr(plan.parts, part)
            if seconds > WORTH_NAMING * late_s:
                yield f"planned {seconds:.2f} s; more if {cause}"
