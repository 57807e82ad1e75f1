"""What a run would need and take: memory and messages, the step in parts, the time to the target, each with its doubt.

The step is simulated (step_model/) unless a speed is given. Memory and messages of this repository's own code are those
of the dry run, other stacks' memory is computed by formula.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchmark.config.run_config import RunConfig
from benchmark.planning.dry_runs.dry_run import DryRun
from benchmark.planning.run_plans.plan_memory import planned_memory
from benchmark.planning.run_plans.plan_options import (
    PlanOptions,
    flops_per_token,
    given_tflops,
    planned_workload,
    require_possible,
)
from benchmark.planning.run_plans.run_costs import Interval, RunCosts, run_costs
from benchmark.planning.run_plans.run_length import RunLength, run_length, tokens_to_target, validation_tokens
from benchmark.planning.step_model.machine_constants import Constant, committed_constants, names_in, values_of
from benchmark.planning.step_model.nearly_full import WARNING, nearly_full, widened
from benchmark.planning.step_model.simulated_step import StepParts, simulate_evaluation
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.step_interval import Influence, StepInterval, predict_step
from benchmark.planning.step_model.what_if import apply_what_if
from stage.errors import InputError

FORWARD_SHARE = 1 / 3
"""Of an evaluated token's FLOPs in a trained one's: no backward pass, which takes twice the forward's. Used where the
speed is given."""
LEFT_OUT = (
    "left out of the run: the pause at each checkpoint, restarts, audits, and what comes before run_start (untimed)"
)


@dataclass(frozen=True)
class TimeEstimate:
    """Figures that follow from the step's time."""

    tflops_per_device: float
    """Model FLOP/s, bubble and messages included."""
    mfu: float | None
    """Of the dense BF16 peak; None where that is not known."""
    step_s: float
    tokens_per_s: float
    tokens_per_s_per_device: float
    evaluation_s: float | None
    """Of one evaluation; None where the size of the validation set is not known."""
    lengths: tuple[RunLength, ...]
    """Shortest and longest run to the target; one where no target is set, none where nothing is known."""


@dataclass(frozen=True)
class ReferenceRun:
    """A run on the same machines with a batch size of the reference points, by their mean samples to the target."""

    global_batch_size: int
    steps: int
    step_s: float
    run_s: float
    run_interval_s: Interval


@dataclass(frozen=True)
class RunPlan:
    """Top-level figures first, for scripts; intervals hold about nine of ten runs, None where nothing is known."""

    step_s: float | None
    mfu: float | None
    tflops_per_device: float | None
    bubble_s: float | None
    """Waiting within the pipeline; None where the speed is given."""
    evaluation_s: float | None
    run_s: float | None
    """run_start to run_stop, by the mean tokens of reference runs at this batch size, else of published ones."""
    memory_bytes: dict[str, float]
    """By kind, of the rank that needs most."""
    memory_fits: bool | None
    """None where the devices' memory is not known."""
    intervals: dict[str, Interval]
    """By the names above."""
    parts: StepParts | None
    """Seconds of the step; None where the speed is given."""
    influences: tuple[Influence, ...]
    """What the step's interval mostly comes from, besides the backtest's error."""
    reference_runs: tuple[ReferenceRun, ...]
    costs: RunCosts | None
    stack: str
    precision: str
    step_flops: float
    """Model FLOPs of a step of the whole system (model/flops.py)."""
    bubble: float
    """(p - 1) / (m v): idle time of a device over its working time, by the textbook's formula."""
    estimate: TimeEstimate | None
    assumptions: tuple[str, ...]
    """Why each figure is what it is, or missing."""
    dry_run: DryRun | None
    """None for stacks other than this repository's."""

    @property
    def complaint(self) -> str | None:
        """Why it does not fit; None where it does."""
        if self.dry_run is not None:
            return self.dry_run.complaint
        return None if self.memory_fits is not False else self.assumptions[-1]


def make_plan(
    config: RunConfig,
    examined: DryRun | None,
    options: PlanOptions | None = None,
    constants: Mapping[str, Constant] | None = None,
) -> RunPlan:
    """The plan of a run; ``examined``: the dry run, for this repository's stack.

    Raises InputError for what :func:`require_possible` refuses.
    """
    options = PlanOptions() if options is None else options
    require_possible(config, options)
    constants = committed_constants() if constants is None else constants
    table = _validation(config)
    given = given_tflops(config, options)
    per_token = flops_per_token(config, options)
    step_flops = config.tokens_per_step * per_token
    predicted = None
    if given is not None:
        step_s = step_flops / (given[0] * 1e12 * config.system.num_devices)
        why, interval = given[1], (step_s, step_s)
        evaluation_s = None if table[0] is None else table[0] * per_token * FORWARD_SHARE / step_flops * step_s
    else:
        missing = _why_not_simulated(config, constants)
        if missing is not None:
            return _without_time(config, examined, options, missing, step_flops)
        changed = apply_what_if(options.what_if, planned_workload(config, options), constants)
        predicted = widened(predict_step(changed.work, changed.constants), changed.work)
        step_s, interval = predicted.step_s, (predicted.low_s, predicted.high_s)
        why = _whence(predicted, options, constants) + (f"; {WARNING}" if nearly_full(changed.work) else "")
        sequences = None if table[0] is None else table[0] // config.benchmark.model.seq_length
        values = values_of(changed.constants)
        evaluation_s = None if sequences is None else simulate_evaluation(changed.work, values, sequences)
    return _assembled(config, examined, options, constants, predicted, step_s, interval, evaluation_s, (why, table[1]))


def _why_not_simulated(config: RunConfig, constants: Mapping[str, Constant]) -> str | None:
    system = config.system
    if config.precision == "fp32":
        return "no time estimated: there are no constants of matrix products in FP32; give --mfu or --tflops"
    if system.accelerator not in names_in(constants, "accelerators"):
        known = ", ".join(names_in(constants, "accelerators"))
        return (
            f"no time estimated: no constants of {system.accelerator or system.device}, only of {known}; give --tflops"
        )
    return None


def _whence(predicted: StepInterval, options: PlanOptions, constants: Mapping[str, Constant]) -> str:
    error = constants[f"stacks.{options.stack}.error"].value
    return (
        f"step simulated as {STACKS[options.stack].title} would run it ({STACKS[options.stack].source}); interval: the "
        f"backtest's error, {error:.1%} for nine of ten published steps not used for fitting, and "
        f"{len(predicted.influences)} constants without published steps behind them"
    )


def _validation(config: RunConfig) -> tuple[int | None, str]:
    """Tokens of the validation set in whole sequences, and where from."""
    tokens, counted = validation_tokens(config)
    sequence = config.benchmark.model.seq_length
    return (None if tokens is None else math.ceil(tokens / sequence) * sequence), counted


def _assembled(
    config: RunConfig,
    examined: DryRun | None,
    options: PlanOptions,
    constants: Mapping[str, Constant],
    predicted: StepInterval | None,
    step_s: float,
    interval: Interval,
    evaluation_s: float | None,
    whys: tuple[str, str],
) -> RunPlan:
    system, benchmark = config.system, config.benchmark
    step_flops = config.tokens_per_step * flops_per_token(config, options)
    tflops = step_flops / (step_s * system.num_devices * 1e12)
    tokens_per_s = config.tokens_per_step / step_s
    goals, goal_source = tokens_to_target(benchmark)
    if options.other_model:
        goals, goal_source = (), "no run length: the model is not the benchmark's"
    lengths = () if evaluation_s is None else tuple(
        dict.fromkeys(run_length(config, goal, step_s, evaluation_s) for goal in goals)
    )  # fmt: skip
    peak = system.peak_tflops
    mfu = None if peak is None else tflops / peak
    estimate = TimeEstimate(tflops, mfu, step_s, tokens_per_s, tokens_per_s / system.num_devices, evaluation_s, lengths)
    run_s = None
    if lengths and evaluation_s is not None:
        expected = benchmark.expected_steps * config.tokens_per_step
        run_s = run_length(config, expected, step_s, evaluation_s).seconds
        run_s = min(max(run_s, lengths[0].seconds), lengths[-1].seconds)
    intervals = _intervals(step_s, interval, mfu, tflops, evaluation_s, lengths, predicted)
    costs = None
    if not options.other_model:  # whose checkpoint is not this repository's
        costs = run_costs(
            config,
            step_s=step_s,
            run_s=run_s,
            run_interval_s=intervals.get("run_s"),
            watts=options.watts,
            dollars_per_hour=options.dollars_per_hour,
        )
    memory, fits, memory_why = planned_memory(config, examined, options)
    known = predicted is not None and evaluation_s is not None and not options.other_model
    references = () if not known else _references(config, options, constants)
    return RunPlan(
        step_s=step_s,
        mfu=mfu,
        tflops_per_device=tflops,
        bubble_s=None if predicted is None else predicted.parts.bubble,
        evaluation_s=evaluation_s,
        run_s=run_s,
        memory_bytes=memory,
        memory_fits=fits,
        intervals=intervals,
        parts=None if predicted is None else predicted.parts,
        influences=() if predicted is None else predicted.influences[:5],
        reference_runs=references,
        costs=costs,
        stack=options.stack,
        precision=options.precision,
        step_flops=step_flops,
        bubble=_textbook_bubble(config),
        estimate=estimate,
        assumptions=tuple(filter(None, (whys[0], goal_source, whys[1], LEFT_OUT, memory_why))),
        dry_run=examined,
    )


def _textbook_bubble(config: RunConfig) -> float:
    return (config.system.pipeline_parallel - 1) / (config.num_microbatches * config.system.pipeline_chunks)


def _intervals(
    step_s: float,
    interval: Interval,
    mfu: float | None,
    tflops: float,
    evaluation_s: float | None,
    lengths: tuple[RunLength, ...],
    predicted: StepInterval | None,
) -> dict[str, Interval]:
    """Everything that goes by the step's time has the step's doubt; a run has that of its tokens besides."""
    low, high = interval[0] / step_s, interval[1] / step_s
    found = {"step_s": interval, "tflops_per_device": (tflops / high, tflops / low)}
    if mfu is not None:
        found["mfu"] = (mfu / high, mfu / low)
    if evaluation_s is not None:
        found["evaluation_s"] = (evaluation_s * low, evaluation_s * high)
    if lengths:
        found["run_s"] = (lengths[0].seconds * low, lengths[-1].seconds * high)
    if predicted is not None:
        bubble = predicted.parts.bubble
        found["bubble_s"] = (bubble * low, bubble * high)
    return found


def _references(config: RunConfig, options: PlanOptions, constants: Mapping[str, Constant]) -> tuple[ReferenceRun, ...]:
    """Runs at the batch sizes of the reference points, where this layout can take them."""
    found = []
    for size, _ in config.benchmark.samples_to_target:
        benchmark = dataclasses.replace(config.benchmark, global_batch_size=size)
        other = dataclasses.replace(config, benchmark=benchmark)
        try:
            other.require_fit()
        except InputError:
            continue
        tokens = _validation(other)[0]
        if tokens is None:
            continue
        changed = apply_what_if(options.what_if, planned_workload(other, options), constants)
        step = widened(predict_step(changed.work, changed.constants), changed.work)
        sequences = tokens // benchmark.model.seq_length
        evaluation_s = simulate_evaluation(changed.work, values_of(changed.constants), sequences)
        length = run_length(other, benchmark.expected_steps * other.tokens_per_step, step.step_s, evaluation_s)
        low, high = (length.seconds * end / step.step_s for end in (step.low_s, step.high_s))
        found.append(ReferenceRun(size, length.steps, step.step_s, length.seconds, (low, high)))
    return tuple(found)


def _without_time(
    config: RunConfig, examined: DryRun | None, options: PlanOptions, why: str, step_flops: float
) -> RunPlan:
    memory, fits, memory_why = ({}, None, "") if examined is None else planned_memory(config, examined, options)
    return RunPlan(
        step_s=None,
        mfu=None,
        tflops_per_device=None,
        bubble_s=None,
        evaluation_s=None,
        run_s=None,
        memory_bytes=memory,
        memory_fits=fits,
        intervals={},
        parts=None,
        influences=(),
        reference_runs=(),
        costs=None,
        stack=options.stack,
        precision=options.precision,
        step_flops=step_flops,
        bubble=_textbook_bubble(config),
        estimate=None,
        assumptions=tuple(filter(None, (why, memory_why))),
        dry_run=examined,
    )
