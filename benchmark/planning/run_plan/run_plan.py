"""Plan a run: memory and messages, the step in parts, the time to the target, each with its uncertainty.

The step is simulated (step_model/). Memory and messages of this repository's own code come from the dry run; other
stacks' memory is computed by formula.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from benchmark.planning.dry_run.dry_run import MEMORY_PARTS, RESERVE, DryRun
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions, planned_workload, require_possible
from benchmark.planning.run_plan.run_costs import Interval, RunCosts, run_costs
from benchmark.planning.run_plan.run_length import (
    RunLength,
    evaluation_sequences,
    expected_length,
    is_the_benchmarks,
    run_length,
    tokens_to_target,
)
from benchmark.planning.step_model.machine_constants import Constant, committed_constants, names_in, values_of
from benchmark.planning.step_model.memory_formula import memory_need
from benchmark.planning.step_model.simulated_step import (
    Influence,
    StepInterval,
    StepParts,
    predict_step,
    simulate_evaluation,
)
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.what_if import apply_what_if
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
    """Share of the dense BF16 peak."""
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
    parts: StepParts | None = None
    """Parts of the step, in seconds."""
    influences: tuple[Influence, ...] = ()
    """Constants that widen the step's interval most, besides the backtest's error."""
    reference_runs: tuple[ReferenceRun, ...] = ()
    costs: RunCosts | None = None
    stack: str
    precision: str
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


def make_plan(
    config: PlannedRun,
    examined: DryRun | None,
    options: PlanOptions | None = None,
    constants: Mapping[str, Constant] | None = None,
) -> RunPlan:
    """Return the plan of a run; ``examined`` is the dry run for this repository's stack.

    Raises InputError for options that :func:`require_possible` refuses.
    """
    options = PlanOptions() if options is None else options
    require_possible(config, options)
    constants = committed_constants() if constants is None else constants
    system, (sequences, counted) = config.system, evaluation_sequences(config)
    memory, fits, memory_why = _memory(config, examined, options)
    step_tokens = config.benchmark.tokens_per_step
    flops = step_tokens * train_flops_per_token(config.benchmark.model)
    without_time = RunPlan(
        memory_bytes=memory,
        memory_fits=fits,
        stack=options.stack,
        precision=config.number,
        step_flops=flops,
        bubble=(system.pipeline_parallel - 1) / (config.num_microbatches * system.pipeline_chunks),
        assumptions=(),
        dry_run=examined,
    )
    why = _why_no_time(config, constants)
    if why is not None:
        return dataclasses.replace(without_time, assumptions=tuple(filter(None, (why, memory_why))))
    step, evaluation_s = _simulated(config, options, constants, sequences)
    goals, goal_source = tokens_to_target(config.benchmark)
    lengths: tuple[RunLength, ...] = ()
    run_s = None
    if goals and evaluation_s is not None:
        expected = expected_length(config.benchmark, step.step_s, evaluation_s)
        lengths = tuple(dict.fromkeys(run_length(config.benchmark, goal, step.step_s, evaluation_s) for goal in goals))
        run_s = min(max(expected.seconds, lengths[0].seconds), lengths[-1].seconds)
    tflops, tokens_per_s = flops / (step.step_s * system.num_devices * 1e12), step_tokens / step.step_s
    stack, error = STACKS[options.stack], constants[f"stacks.{options.stack}.error"].value
    simulated = (
        f"step simulated as {stack.title} would run it ({stack.source}); interval: the backtest's error, {error:.1%} "
        f"for nine of ten published steps not used for fitting, and {len(step.influences)} constants without "
        "published steps behind them"
    )
    made = dataclasses.replace(
        without_time,
        step_s=step.step_s,
        mfu=None if system.peak_tflops is None else tflops / system.peak_tflops,
        tflops_per_device=tflops,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_device=tokens_per_s / system.num_devices,
        bubble_s=step.parts.bubble,
        evaluation_s=evaluation_s,
        run_s=run_s,
        lengths=lengths,
        parts=step.parts,
        influences=step.influences[:MOST_INFLUENCES],
        reference_runs=_references(config, options, constants),
        assumptions=tuple(filter(None, (simulated, goal_source, counted, LEFT_OUT, memory_why))),
    )
    intervals = _intervals(made, step)
    costs = run_costs(config, step_s=step.step_s, run_s=run_s, run_interval_s=intervals.get("run_s"))
    return dataclasses.replace(made, intervals=intervals, costs=costs)


def _memory(
    config: PlannedRun, examined: DryRun | None, options: PlanOptions
) -> tuple[dict[str, float], bool | None, str]:
    """Return the bytes by kind on the rank that needs most, from the dry run or else by formula; whether they fit; and
    the complaint or the source of the figures."""
    memory_gb = config.system.memory_gb
    if examined is not None:
        worst = max(examined.reports, key=lambda report: report.peak_bytes)
        counted = {kind: float(getattr(worst, f"{kind}_bytes")) for kind in MEMORY_PARTS}
        return counted, (None if memory_gb is None else examined.complaint is None), ""
    formula = memory_need(planned_workload(config, options))
    need = {**dataclasses.asdict(formula), "peak": formula.total}
    if memory_gb is None:
        return need, None, "memory by formula (arXiv 2205.05198, section 4)"
    fits = formula.total <= memory_gb * 1e9 * (1 - RESERVE)
    told = f"memory by formula: {formula.total / 1e9:.1f} GB of {config.system.accelerator}'s {memory_gb:.0f}"
    advice = "; raise --tensor-parallel, --pipeline-parallel or --nodes, or choose --recompute selective or full"
    return need, fits, told if fits else f"{told}, of which {RESERVE:.0%} stay free{advice}"


def _why_no_time(config: PlannedRun, constants: Mapping[str, Constant]) -> str | None:
    """Return the reason why the step cannot be simulated; None if it can."""
    known, system = names_in(constants, "accelerators"), config.system
    if config.precision == "fp32":
        return "no time estimated: there are no constants of matrix products in FP32"
    if system.accelerator not in known:
        return f"no time estimated: no constants of {system.accelerator or system.device}, only of {', '.join(known)}"
    return None


def _simulated(
    config: PlannedRun, options: PlanOptions, constants: Mapping[str, Constant], sequences: int | None
) -> tuple[StepInterval, float | None]:
    """Return the simulated step, and the seconds of an evaluation if its size is known."""
    work, constants = apply_what_if(options.what_if, planned_workload(config, options), constants)
    step = predict_step(work, constants)
    return step, None if sequences is None else simulate_evaluation(work, values_of(constants), sequences)


def _intervals(made: RunPlan, step: StepInterval) -> dict[str, Interval]:
    """Return the intervals of all figures. Figures that follow the step's time share its uncertainty; a run adds that
    of its tokens."""
    low, high = step.low_s / step.step_s, step.high_s / step.step_s
    found = {"step_s": (step.low_s, step.high_s)}
    for name in ("evaluation_s", "bubble_s"):
        seconds = getattr(made, name)
        if seconds is not None:
            found[name] = (seconds * low, seconds * high)
    for name in ("tflops_per_device", "mfu"):
        speed = getattr(made, name)
        if speed is not None:
            found[name] = (speed / high, speed / low)
    if made.lengths:
        found["run_s"] = (made.lengths[0].seconds * low, made.lengths[-1].seconds * high)
    return found


def _references(
    config: PlannedRun, options: PlanOptions, constants: Mapping[str, Constant]
) -> tuple[ReferenceRun, ...]:
    """Return the benchmark's runs at the batch sizes of the reference points, as far as this layout can take them."""
    found = []
    sizes = config.benchmark.samples_to_target if is_the_benchmarks(config.benchmark) else ()
    for size, _ in sizes:
        benchmark = dataclasses.replace(config.benchmark, global_batch_size=size)
        other = dataclasses.replace(config, benchmark=benchmark)
        try:
            other.require_fit()
        except InputError:
            continue
        step, evaluation_s = _simulated(other, options, constants, evaluation_sequences(other)[0])
        if evaluation_s is None:
            continue
        length = expected_length(other.benchmark, step.step_s, evaluation_s)
        low, high = (length.seconds * end / step.step_s for end in (step.low_s, step.high_s))
        found.append(ReferenceRun(size, length.steps, step.step_s, length.seconds, (low, high)))
    return tuple(found)
