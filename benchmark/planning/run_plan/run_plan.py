"""Plan a run: memory and messages, the step in parts, the time to the target, each with its uncertainty.

The step is simulated (step_model/). Memory and messages of this repository's own code come from the dry run; other
stacks' memory is computed by formula.
"""

import dataclasses
from dataclasses import dataclass

from benchmark.config.accelerators import RESERVE
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.config.system_config import System
from benchmark.planning.dry_run.dry_run import MEMORY_PARTS, DryRun
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions
from benchmark.planning.run_plan.run_costs import Interval, RunCosts, run_costs
from benchmark.planning.run_plan.run_length import (
    RunLength,
    evaluation_sequences,
    expected_length,
    is_the_benchmarks,
    run_length,
    tokens_to_target,
)
from benchmark.planning.step_model.machine_constants import Rates, committed_constants
from benchmark.planning.step_model.memory_formula import memory_need
from benchmark.planning.step_model.simulated_step import (
    Influence,
    simulate_evaluation,
    simulate_step,
    step_influences,
    step_interval,
)
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.step_time import StepTime
from benchmark.planning.step_model.what_if import apply_what_if
from benchmark.planning.step_model.workload import TIMED_FORMATS, Workload
from foundation.errors import InputError
from model.flops import train_flops_per_token

LEFT_OUT = (
    "left out of the run: the pause at each checkpoint, restarts, audits, and the time before run_start (untimed)"
)
MOST_INFLUENCES = 5


@dataclass(frozen=True)
class ReferenceRun:
    """A run on the same machines at a reference point's batch size, with that point's mean samples to the target."""

    global_batch_size: int
    steps: int
    step_s: float
    run_s: float
    run_interval_s: Interval


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A plan, with its main figures at the top level for scripts. Intervals hold about nine of ten runs; a figure of
    None is not known."""

    step_s: float | None = None
    mfu: float | None = None
    """Share of the dense peak in the run's format."""
    tflops_per_device: float | None = None
    """Model 10^12 FLOP/s per device, over the whole step with bubble and messages."""
    tokens_per_s: float | None = None
    tokens_per_s_per_device: float | None = None
    bubble_s: float | None = None
    """Seconds of waiting within the pipeline."""
    evaluation_s: float | None = None
    """Seconds of one evaluation; None if the size of the validation set is not known."""
    run_s: float | None = None
    """Seconds from run_start to run_stop, by the mean tokens of reference runs at this batch size, or else of published
    runs."""
    lengths: tuple[RunLength, ...] = ()
    """Shortest and longest run to the target; one entry if no target is set, none if no length is known."""
    memory_bytes: dict[str, float]
    """Bytes by kind, on the rank that needs most."""
    memory_fits: bool | None
    """True if the run fits in memory; None if the devices' memory is not known."""
    intervals: dict[str, Interval] = dataclasses.field(default_factory=dict)
    """Intervals of the figures above, by their names."""
    parts: StepTime | None = None
    """Parts of the step, in seconds."""
    influences: tuple[Influence, ...] = ()
    """Constants that widen the step's interval most, besides the backtest's error."""
    reference_runs: tuple[ReferenceRun, ...] = ()
    costs: RunCosts | None = None
    stack: str
    precision: Precision
    step_flops: float
    """Model FLOPs of a step of the whole system (model/flops.py)."""
    bubble: float
    """Textbook formula (p - 1) / (m v): idle time of a device over its working time."""
    assumptions: tuple[str, ...]
    """Reason for each figure, or for its absence."""
    dry_run: DryRun | None
    """The dry run; None for stacks other than this repository's."""

    @property
    def complaint(self) -> str | None:
        """Return the reason why the run does not fit; None if it fits."""
        if self.dry_run is not None:
            return self.dry_run.complaint
        return None if self.memory_fits is not False else self.assumptions[-1]


def make_plan(run: PlannedRun, options: PlanOptions, rates: Rates | None, examined: DryRun | None) -> RunPlan:
    """Return the plan of a run that :func:`require_possible` lets through.

    ``rates``: the constants of its accelerator and stack, or None if there are none. ``examined``: the dry run for this
    repository's stack.
    """
    benchmark, system = run.benchmark, run.system
    evaluation_source = evaluation_sequences(benchmark, run.data)[1]
    memory, fits, memory_text = _memory(examined, run.workload(options), system)
    flops = benchmark.tokens_per_step * train_flops_per_token(benchmark.model)
    without_time = RunPlan(
        memory_bytes=memory,
        memory_fits=fits,
        stack=options.stack,
        precision=run.precision,
        step_flops=flops,
        bubble=(system.pipeline_parallel - 1) / (run.num_microbatches * system.pipeline_chunks),
        assumptions=(),
        dry_run=examined,
    )
    if run.precision not in TIMED_FORMATS or rates is None:
        reason = f"there are no constants of matrix products in {NUMBER_FORMATS[run.precision].title}"
        if run.precision in TIMED_FORMATS:
            names = ", ".join(committed_constants().accelerators)
            reason = f"no constants of {system.accelerator or system.device}, only of {names}"
        assumptions = tuple(filter(None, (f"no time estimated: {reason}", memory_text)))
        return dataclasses.replace(without_time, assumptions=assumptions)
    plan = _with_step(without_time, run, options, rates)
    sources = (*plan.assumptions, evaluation_source, LEFT_OUT, memory_text)
    costs = run_costs(
        benchmark,
        system,
        run.checkpoints.save_minutes,
        step_s=plan.parts.total if plan.parts else 0.0,
        run_s=plan.run_s,
        run_interval_s=plan.intervals.get("run_s"),
    )
    return dataclasses.replace(plan, assumptions=tuple(filter(None, sources)), costs=costs)


def _with_step(plan: RunPlan, run: PlannedRun, options: PlanOptions, rates: Rates) -> RunPlan:
    """Return the plan with the simulated step, the run's length, and their intervals."""
    benchmark, system = run.benchmark, run.system
    work, changed_rates = apply_what_if(options.what_if, run.workload(options), rates)
    parts = simulate_step(work, changed_rates)
    step_s, step_tokens = parts.total, benchmark.tokens_per_step
    influences = step_influences(work, changed_rates, step_s)
    sequences = evaluation_sequences(benchmark, run.data)[0]
    evaluation_s = None if sequences is None else simulate_evaluation(work, changed_rates, sequences)
    goals, goal_source = tokens_to_target(benchmark)
    lengths: tuple[RunLength, ...] = ()
    run_s = None
    if goals and evaluation_s is not None:
        expected = expected_length(benchmark, step_s, evaluation_s)
        lengths = tuple(dict.fromkeys(run_length(benchmark, goal, step_s, evaluation_s) for goal in goals))
        run_s = min(max(expected.seconds, lengths[0].seconds), lengths[-1].seconds)
    tflops, tokens_per_s = plan.step_flops / (step_s * system.num_devices * 1e12), step_tokens / step_s
    stack, peak_tflops = STACKS[options.stack], system.peak_tflops_in(run.precision)
    simulated = (
        f"step simulated as {stack.title} would run it ({stack.source}); interval: the backtest's error, "
        f"{changed_rates.error(fp8=work.fp8):.1%} for nine of ten published steps of models not used for fitting, and "
        f"{len(influences)} constants without published steps behind them"
    )
    timed = dataclasses.replace(
        plan,
        step_s=step_s,
        mfu=None if peak_tflops is None else tflops / peak_tflops,
        tflops_per_device=tflops,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_device=tokens_per_s / system.num_devices,
        bubble_s=parts.bubble,
        evaluation_s=evaluation_s,
        run_s=run_s,
        lengths=lengths,
        parts=parts,
        influences=tuple(influences[:MOST_INFLUENCES]),
        reference_runs=_references(run, options, rates),
        assumptions=(simulated, goal_source),
    )
    intervals = _intervals(timed, step_s, step_interval(work, changed_rates, step_s, influences))
    return dataclasses.replace(timed, intervals=intervals)


def _memory(examined: DryRun | None, work: Workload, system: System) -> tuple[dict[str, float], bool | None, str]:
    """Return the bytes by kind on the rank that needs most, from the dry run or else by formula; whether they fit; and
    the complaint or the source of the figures."""
    memory_gb = system.memory_gb
    if examined is not None:
        worst = max(examined.reports, key=lambda report: report.peak_bytes)
        sizes = {kind: float(getattr(worst, f"{kind}_bytes")) for kind in MEMORY_PARTS}
        return sizes, (None if memory_gb is None else examined.complaint is None), ""
    formula = memory_need(work)
    need = {**dataclasses.asdict(formula), "peak": formula.total}
    if memory_gb is None:
        return need, None, "memory by formula (arXiv 2205.05198, section 4)"
    fits = formula.total <= memory_gb * 1e9 * (1 - RESERVE)
    text = f"memory by formula: {formula.total / 1e9:.1f} GB of {system.accelerator}'s {memory_gb:.0f}"
    advice = "; raise --tensor-parallel, --pipeline-parallel or --nodes, or choose --recompute selective or full"
    return need, fits, text if fits else f"{text}, of which {RESERVE:.0%} stay free{advice}"


def _intervals(plan: RunPlan, step_s: float, step_interval_s: Interval) -> dict[str, Interval]:
    """Return the intervals of all figures. Figures that follow the step's time share its uncertainty; a run adds that
    of its tokens."""
    low, high = (end_s / step_s for end_s in step_interval_s)
    intervals = {"step_s": step_interval_s}
    for name in ("evaluation_s", "bubble_s"):
        seconds = getattr(plan, name)
        if seconds is not None:
            intervals[name] = (seconds * low, seconds * high)
    for name in ("tflops_per_device", "mfu"):
        speed = getattr(plan, name)
        if speed is not None:
            intervals[name] = (speed / high, speed / low)
    if plan.lengths:
        intervals["run_s"] = (plan.lengths[0].seconds * low, plan.lengths[-1].seconds * high)
    return intervals


def _references(run: PlannedRun, options: PlanOptions, rates: Rates) -> tuple[ReferenceRun, ...]:
    """Return the benchmark's runs at the batch sizes of the reference points, as far as this layout can take them."""
    runs = []
    points = run.benchmark.samples_to_target if is_the_benchmarks(run.benchmark) else ()
    for batch_size, _ in points:
        benchmark = dataclasses.replace(run.benchmark, global_batch_size=batch_size)
        at_batch_size = dataclasses.replace(run, benchmark=benchmark)
        try:
            at_batch_size.require_fit()
        except InputError:
            continue
        sequences = evaluation_sequences(benchmark, run.data)[0]
        if sequences is None:
            continue
        work, changed_rates = apply_what_if(options.what_if, at_batch_size.workload(options), rates)
        step_s = simulate_step(work, changed_rates).total
        ends_s = step_interval(work, changed_rates, step_s, step_influences(work, changed_rates, step_s))
        length = expected_length(benchmark, step_s, simulate_evaluation(work, changed_rates, sequences))
        low, high = (length.seconds * end_s / step_s for end_s in ends_s)
        runs.append(ReferenceRun(batch_size, length.steps, step_s, length.seconds, (low, high)))
    return tuple(runs)
