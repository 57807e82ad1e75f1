"""What a run would need and take: memory and messages from the dry run, time by arithmetic with its assumptions said.

Time is model FLOPs over what the devices are assumed to reach, nothing cleverer: a figure of another stack on the same
shape says more than a simulation that was never compared with a run.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.benchmarks import BENCHMARKS, GPT3_175B
from benchmark.config.run_config import Benchmark, RunConfig
from benchmark.planning.dry_run import MEMORY_PARTS, DryRun, RankReport
from benchmark.results.convergence import points_in
from benchmark.results.judged import REHEARSAL_POINTS
from benchmark.training.inputs import count_validation_tokens
from model.flops import train_flops_per_token
from stage.errors import InputError

FORWARD_SHARE = 1 / 3
"""Of an evaluated token's FLOPs in a trained one's: no backward pass, which takes twice the forward's."""

_MEGATRON = "Megatron-LM, BF16, GPT-3 175B on 96 H100; 42 % on 4,608 (its README; docs/facts/peers.md 1.2)"
PUBLISHED_MFU = {
    "A100-80GB": (0.514, "Reducing Activation Recomputation, BF16, GPT-3 175B on A100 (arXiv 2205.05198)"),
    "H100 SXM": (0.47, _MEGATRON),
    "H200": (0.47, f"{_MEGATRON}; the H200 has the same peak"),
}
"""Model FLOP/s utilisation of other stacks on the 175B model in BF16, bubble and messages included. Of this code there
is no measurement yet; for the B200 only FP8 results are published."""

PUBLISHED_TOKENS = (23.0 * 24576 * 2048, 29.0 * 24576 * 2048)
"""Fewest and most tokens to 2.69 in any published result, 1.158e9 and 1.460e9 (docs/facts/peers.md 1.1) …"""
PUBLISHED_BATCH_SIZES = (1536, 6144)
"""… and their batch sizes."""
VALIDATION_TOKENS = {"gpt3_175b": 11_590_004, "rehearsal": 22_434}
"""Of the published subset (docs/facts/peers.md 1.0) and of the rehearsal's generated text."""

LEFT_OUT = (
    "an evaluated token takes a third of a trained token's FLOPs, at the same speed",
    "left out: the pause at each checkpoint, restarts, audits, and what comes before run_start (untimed)",
)


@dataclass(frozen=True)
class RunLength:
    """A run of so many tokens, rounded up to a whole evaluation, where a run can stop."""

    tokens: int
    steps: int
    evaluations: int
    seconds: float
    """run_start to run_stop."""
    evaluation_share: float
    """Part of these seconds."""


@dataclass(frozen=True)
class TimeEstimate:
    """Figures that follow from the assumed speed."""

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
class RunPlan:
    step_flops: float
    """Model FLOPs of a step of the whole system (model/flops.py)."""
    bubble: float
    """(p - 1) / (m v): idle time of a device over its working time, forward and backward passes of all micro-batches
    taken as equally long. It is part of the assumed utilisation, not added to the step time."""
    estimate: TimeEstimate | None
    assumptions: tuple[str, ...]
    """Why each figure is what it is, or missing."""
    dry_run: DryRun


def make_plan(config: RunConfig, examined: DryRun, *, mfu: float | None = None, tflops: float | None = None) -> RunPlan:
    """The plan of a run. ``mfu`` (a fraction) or ``tflops`` (per device) replace the published utilisation.

    Raises InputError for a speed that no device has, or an ``mfu`` where the peak is not known.
    """
    benchmark, system = config.benchmark, config.system
    step_flops = config.tokens_per_step * train_flops_per_token(benchmark.model)
    bubble = (system.pipeline_parallel - 1) / (config.num_microbatches * system.pipeline_chunks)
    speed, why = assumed_tflops(config, mfu, tflops)
    if speed is None:
        return RunPlan(step_flops, bubble, None, (why,), examined)
    tokens, whence = tokens_to_target(benchmark)
    validation_tokens, counted = _validation_tokens(config)
    estimate = _estimate(config, speed, tokens, validation_tokens)
    return RunPlan(step_flops, bubble, estimate, (why, whence, counted, *LEFT_OUT), examined)


def assumed_tflops(config: RunConfig, mfu: float | None, tflops: float | None) -> tuple[float | None, str]:
    """Model TFLOP/s per device and where the figure is from; None and what to give where there is no figure."""
    system, peak = config.system, config.system.peak_tflops
    if mfu is not None and tflops is not None:
        raise InputError("--mfu and --tflops: expected one of them")
    if tflops is not None:
        if not 0 < tflops < math.inf or (peak is not None and tflops > peak):
            most = f" and at most {system.accelerator}'s peak of {peak:g}" if peak is not None else ""
            raise InputError(f"--tflops {tflops:g}: expected more than 0{most}")
        return tflops, f"{tflops:g} TFLOP/s per device, as given"
    if mfu is not None:
        if not 0 < mfu <= 1:
            raise InputError(f"--mfu {mfu:g}: expected a fraction, more than 0 and at most 1, such as 0.47")
        if peak is None:
            raise InputError(
                f"--mfu {mfu:g}: system {system.name} has no accelerator whose peak is known; give --tflops per device "
                f"or --accelerator, one of {', '.join(ACCELERATORS)}"
            )
        return mfu * peak, f"MFU {mfu:.1%} of {peak:g} TFLOP/s, as given"
    same_shape = dataclasses.replace(config.benchmark.model, num_layers=1) == dataclasses.replace(
        GPT3_175B.model, num_layers=1
    )
    if peak is None or system.accelerator not in PUBLISHED_MFU or not same_shape or config.precision != "bf16":
        what = f"{config.benchmark.name} in {config.precision} on {system.accelerator or system.device}"
        return None, f"no time estimated: no utilisation is published for {what}; give --mfu or --tflops"
    published, source = PUBLISHED_MFU[system.accelerator]
    return published * peak, f"MFU {published:.1%} of {peak:g} TFLOP/s, another stack's: {source}"


def tokens_to_target(benchmark: Benchmark) -> tuple[tuple[float, ...], str]:
    """Fewest and most tokens that runs of this benchmark needed, and where from; nothing where there are none."""
    base, size = BENCHMARKS[benchmark.name], benchmark.global_batch_size
    if benchmark.target_log_perplexity is None:
        samples = (benchmark.last_iteration - benchmark.start_iteration) * size
        return (float(samples * benchmark.model.seq_length),), "no target: training to the end of train_samples"
    if dataclasses.replace(benchmark, global_batch_size=base.global_batch_size, optimizer=base.optimizer) != base:
        return (), f"no run length: model, target or start are not those of {base.name}, whose lengths are known"
    if base is GPT3_175B:
        low, high = PUBLISHED_BATCH_SIZES
        tokens, source = PUBLISHED_TOKENS, "the published results (docs/facts/peers.md 1.1)"
    else:
        (point,) = points_in(REHEARSAL_POINTS)
        low = high = round(point.batch_size)
        tokens, source = (point.tokens[0], point.tokens[-1]), "benchmark/results/rehearsal_points.json"
    if not low <= size <= high:
        sizes = f"{low} to {high}" if low < high else str(low)
        return (), f"no run length: the batch sizes of known runs are {sizes}, not {size}"
    return tokens, f"tokens to the target: fewest and most of {source}, rounded up to an evaluation"


def _validation_tokens(config: RunConfig) -> tuple[int | None, str]:
    if config.valid_data_path:
        tokens = count_validation_tokens(config)
        return tokens, f"validation set: {tokens:,} tokens, those of --valid-data-path"
    name = config.benchmark.name
    if config.benchmark.model.vocab_size != BENCHMARKS[name].model.vocab_size:
        return None, "no evaluation time: another vocabulary than the benchmark's; give --valid-data-path"
    return VALIDATION_TOKENS[name], f"validation set: {VALIDATION_TOKENS[name]:,} tokens, {name}'s own"


def _estimate(
    config: RunConfig, tflops: float, tokens: tuple[float, ...], validation_tokens: int | None
) -> TimeEstimate:
    benchmark, system = config.benchmark, config.system
    per_token = train_flops_per_token(benchmark.model)
    tokens_per_s = tflops * 1e12 * system.num_devices / per_token
    step_s = config.tokens_per_step / tokens_per_s
    evaluation_s = None
    if validation_tokens is not None:
        sequence = benchmark.model.seq_length
        evaluation_s = math.ceil(validation_tokens / sequence) * sequence * FORWARD_SHARE / tokens_per_s
    lengths = [] if evaluation_s is None else [_length(config, goal, step_s, evaluation_s) for goal in tokens]
    mfu = None if system.peak_tflops is None else tflops / system.peak_tflops
    per_device = tokens_per_s / system.num_devices
    return TimeEstimate(tflops, mfu, step_s, tokens_per_s, per_device, evaluation_s, tuple(dict.fromkeys(lengths)))


def _length(config: RunConfig, goal: float, step_s: float, evaluation_s: float) -> RunLength:
    steps, interval = math.ceil(goal / config.tokens_per_step), config.benchmark.eval_interval
    if config.benchmark.target_log_perplexity is None:
        evaluations = steps // interval
    else:
        evaluations = math.ceil(steps / interval)
        steps = evaluations * interval
    seconds = steps * step_s + evaluations * evaluation_s
    return RunLength(steps * config.tokens_per_step, steps, evaluations, seconds, evaluations * evaluation_s / seconds)


def format_run_plan(plan: RunPlan, config: RunConfig) -> str:
    """The plan for people, below 120 columns."""
    system = config.system
    title = (
        f"{config.benchmark.name} on {system.name}: {system.num_devices} devices = pipeline {system.pipeline_parallel} "
        f"x data {system.data_parallel} x tensor {system.tensor_parallel}\n"
        f"batch {config.benchmark.global_batch_size} = {config.num_microbatches} micro-batches of "
        f"{system.micro_batch_size} on each data-parallel device; recompute {system.recompute}, {config.precision}"
    )
    lines = [title, "", *_memory(plan, config), "", *_messages(plan), "", *_times(plan, config), ""]
    return "\n".join([*lines, *(f"- {assumption}" for assumption in plan.assumptions)])


def _memory(plan: RunPlan, config: RunConfig) -> Iterator[str]:
    accelerator = config.system.accelerator
    memory_gb = ACCELERATORS[accelerator].memory_gb if accelerator else None
    yield f"{'memory per device, GiB':<28}" + "".join(f"{part:>12}" for part in MEMORY_PARTS)
    for report in plan.dry_run.reports:
        sizes = "".join(f"{getattr(report, f'{part}_bytes') / 2**30:12.2f}" for part in MEMORY_PARTS)
        share = f"  {report.peak_bytes / memory_gb / 1e9:.0%} of {accelerator}" if memory_gb else ""
        yield f"{report.kind:<28}{sizes}{share}"


def _messages(plan: RunPlan) -> Iterator[str]:
    """Of the kind of rank that sends most."""
    busiest: RankReport = max(plan.dry_run.reports, key=lambda report: sum(sent.bytes for sent in report.traffic))
    spread = "   GB/s if spread over the step" if plan.estimate else ""
    yield f"{f'messages, {busiest.kind}':<50}{'calls/step':>12}{'GiB/step':>12}{spread}"
    for sent in busiest.traffic:
        rate = f"{sent.bytes / 1e9 / plan.estimate.step_s:12.3f}" if plan.estimate else ""
        yield f"  {sent.kind:<24}{sent.axis:<24}{sent.calls:>12}{sent.bytes / 2**30:12.3f}{rate}"


def _times(plan: RunPlan, config: RunConfig) -> Iterator[str]:
    system, estimate = config.system, plan.estimate
    yield (
        f"{'pipeline bubble':<18}(p-1)/(m v) = {system.pipeline_parallel - 1}/({config.num_microbatches} x "
        f"{system.pipeline_chunks}) = {plan.bubble:.1%} of the working time, {plan.bubble / (1 + plan.bubble):.1%} of "
        "all; part of the MFU"
    )
    if estimate is None:
        return
    speed = f"{estimate.tflops_per_device:,.4g} TFLOP/s per device"
    yield f"{'step':<18}{estimate.step_s:,.3g} s for {plan.step_flops:.3e} FLOPs at {speed}"
    yield f"{'throughput':<18}{estimate.tokens_per_s:,.0f} tokens/s, {estimate.tokens_per_s_per_device:,.0f} per device"
    if estimate.evaluation_s is not None:
        yield f"{'evaluation':<18}{estimate.evaluation_s:,.3g} s, every {config.benchmark.eval_interval} steps"
    for name, length in zip(("run, at least", "run, at most"), estimate.lengths, strict=False):
        yield (
            f"{name if len(estimate.lengths) > 1 else 'run':<18}{length.seconds / 60:,.1f} min: {length.tokens:,} "
            f"tokens, {length.steps:,} steps, {length.evaluations} evaluations ({length.evaluation_share:.1%} of it)"
        )
