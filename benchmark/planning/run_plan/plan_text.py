"""Format a plan for people: the headline first, at most 30 lines; ``--verbose`` adds the rest."""

from collections.abc import Iterator, Sequence

from benchmark.config.accelerators import BF16_BITS
from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import NUMBER_FORMATS
from benchmark.config.system_config import System
from benchmark.planning.dry_run.dry_run import format_dry_run
from benchmark.planning.run_plan.run_length import is_the_benchmarks
from benchmark.planning.run_plan.run_plan import RunPlan
from foundation.plain_text import folded
from foundation.sizes import significant

PART_NAMES = {
    "matmul": "matrix products",
    "attention": "attention",
    "elementwise": "elementwise",
    "recomputed": "computed again",
    "tensor_messages": "tensor-parallel messages",
    "host": "waiting for the host",
    "losses": "not accounted for",
    "bubble": "pipeline bubble",
    "data_messages": "data-parallel messages",
    "update": "optimizer",
    "jitter": "waiting for the slowest",
    "fixed": "input, norm, logging",
}
WORTH_SHOWING = 0.005
"""Smallest share of the step that the short text shows as a part."""
DECIDING = 3
"""Number of uncertain constants in the short text."""


def format_run_plan(
    plan: RunPlan, benchmark: Benchmark, system: System, published: Sequence[str] = (), *, verbose: bool
) -> str:
    """Return the score, the step, its parts and the deciding constants; ``verbose`` adds the dry run and the
    reasons for every figure. ``published``: published scores on as many such devices, fastest first."""
    micro_batches = system.num_microbatches(benchmark.global_batch_size)
    lines = [
        *_score(plan, benchmark, published),
        "",
        f"{benchmark.name} on {system.name}: {system.num_devices} {system.accelerator or system.device} = "
        f"pipeline {system.pipeline_parallel} x data {system.data_parallel} x tensor {system.tensor_parallel}",
        f"batch {benchmark.global_batch_size} = {micro_batches} micro-batches of "
        f"{system.micro_batch_size} per data-parallel rank; recompute {system.recompute}, {plan.precision}, "
        f"stack {plan.stack}",
        "",
        *_figures(plan, benchmark, system),
        *_runs(plan, verbose=verbose),
        "",
        *_parts(plan, verbose=verbose),
        *_deciding(plan, verbose=verbose),
    ]
    if verbose:
        sizes = "  ".join(f"{kind} {size / 2**30:.2f}" for kind, size in plan.memory_bytes.items())
        by_rank = None if plan.dry_run is None else format_dry_run(plan.dry_run, system, micro_batches)
        lines += [
            "",
            by_rank or f"memory of the rank that needs most, GiB: {sizes}",
            "",
            *_costs(plan, benchmark, system),
            "",
        ]
        lines += [f"- {assumption}" for assumption in plan.assumptions]
    elif plan.step_s is None:
        lines += plan.assumptions
    else:
        lines += [
            "",
            "--verbose: memory and messages by rank, checkpoint, start, failures, and where each figure is from",
        ]
    return folded("\n".join(lines))


def _score(plan: RunPlan, benchmark: Benchmark, published: Sequence[str]) -> Iterator[str]:
    """Yield the machine's expected score, and the published scores on the same number of these devices."""
    if not is_the_benchmarks(benchmark):
        name = benchmark.name
        yield f"not the benchmark: model, target or start differ from those of {name}, so there is no score"
        return
    if plan.run_s is None:
        yield f"{'would score':<18}not known{'' if plan.step_s is None else f': {plan.assumptions[1]}'}"
    else:
        yield f"{'would score':<18}{plan.run_s / 60:,.1f} min{_interval(plan, 'run_s', 1 / 60)}"
    if published:
        yield f"{'published':<18}{', '.join(published)}"


def _figures(plan: RunPlan, benchmark: Benchmark, system: System) -> Iterator[str]:
    """Yield the lines on speed, memory and failures."""
    if plan.step_s is not None and plan.tflops_per_device is not None:
        row = NUMBER_FORMATS[plan.precision]
        of_peak = "" if row.product_bits == BF16_BITS else f" of the {row.title} peak"
        mfu = "" if plan.mfu is None else f"MFU {plan.mfu:.1%}{_interval(plan, 'mfu', 100, '%')}{of_peak}, "
        yield f"{'step':<18}{plan.step_s:,.3g} s{_interval(plan, 'step_s')}"
        yield (
            f"{'speed':<18}{mfu}{significant(plan.tflops_per_device, 4)} TFLOP/s, "
            f"{plan.tokens_per_s_per_device:,.0f} tokens/s per device, {plan.tokens_per_s:,.0f} in all"
        )
    if plan.evaluation_s is not None:
        every = f"every {benchmark.eval_interval} steps"
        yield f"{'evaluation':<18}{plan.evaluation_s:,.3g} s{_interval(plan, 'evaluation_s')}, {every}"
    memory_gb, peak = system.memory_gb, plan.memory_bytes["peak"]
    share = f", {peak / memory_gb / 1e9:.0%} of {system.accelerator}" if memory_gb else ""
    fits = {True: ": it fits", False: ": it does not fit", None: ""}[plan.memory_fits]
    yield f"{'memory':<18}{peak / 2**30:.1f} GiB on the rank that needs most{share}{fits}"
    costs = plan.costs
    if costs is not None and costs.with_failures_s is not None and costs.with_failures_interval_s is not None:
        low, high = (end / 60 for end in costs.with_failures_interval_s)
        yield (
            f"{'with failures':<18}{costs.with_failures_s / 60:,.1f} min ({low:,.1f} to {high:,.1f}), at "
            f"--device-mtbf-hours {system.device_mtbf_hours:g}"
        )


def _runs(plan: RunPlan, *, verbose: bool) -> Iterator[str]:
    names = ("run, at least", "run, at most") if len(plan.lengths) > 1 else ("run",)
    for name, length in zip(names, plan.lengths, strict=False):
        yield (
            f"{name:<18}{length.seconds / 60:,.1f} min: {length.tokens:,} tokens, {length.steps:,} steps, "
            f"{length.evaluations} evaluations ({length.evaluation_share:.1%} of it)"
        )
    if plan.reference_runs and not verbose:
        minutes = (f"{run.global_batch_size}: {run.run_s / 60:,.1f}" for run in plan.reference_runs)
        yield f"{'minutes by batch':<18}{', '.join(minutes)}"
        return
    for reference in plan.reference_runs:
        low, high = reference.run_interval_s
        yield (
            f"{'run at batch':<18}{reference.global_batch_size}: {reference.run_s / 60:,.1f} min ({low / 60:,.1f} to "
            f"{high / 60:,.1f}), {reference.steps} steps of {reference.step_s:,.3g} s"
        )


def _interval(plan: RunPlan, name: str, factor: float = 1, unit: str = "") -> str:
    low, high = plan.intervals.get(name, (0.0, 0.0))
    return "" if low >= high else f" ({low * factor:,.3g} to {high * factor:,.3g}{unit})"


def _parts(plan: RunPlan, *, verbose: bool) -> Iterator[str]:
    if plan.parts is None or plan.step_s is None:
        return
    yield f"{'parts of the step':<28}{'seconds':>10}{'share':>8}"
    for name, title in PART_NAMES.items():
        seconds = getattr(plan.parts, name)
        if seconds > (0 if verbose else WORTH_SHOWING * plan.step_s):
            yield f"  {title:<26}{seconds:>10.3f}{seconds / plan.step_s:>8.1%}"


def _deciding(plan: RunPlan, *, verbose: bool) -> Iterator[str]:
    """Yield the step and its MFU at both ends of each uncertain constant's range."""
    if plan.step_s is None or not plan.influences:
        return
    yield "constants not measured yet, and the step at the ends of their ranges"
    for influence in plan.influences if verbose else plan.influences[:DECIDING]:
        ends = []
        for change_s in (influence.low_s, influence.high_s):
            mfu = "" if plan.mfu is None else f", {plan.mfu * plan.step_s / (plan.step_s + change_s):.1%}"
            ends.append(f"{plan.step_s + change_s:,.3g} s{mfu}")
        yield f"  {influence.constant:<34}{' to '.join(ends)}"


def _costs(plan: RunPlan, benchmark: Benchmark, system: System) -> Iterator[str]:
    costs = plan.costs
    begins = "an initial checkpoint" if benchmark.start_iterations else "weights drawn from the seed: no checkpoint"
    yield f"{'begins with':<18}{begins}"
    micro_batches = system.num_microbatches(benchmark.global_batch_size)
    yield (
        f"{'pipeline bubble':<18}(p-1)/(m v) = {system.pipeline_parallel - 1}/({micro_batches} x "
        f"{system.pipeline_chunks}) = {plan.bubble:.1%} of the working time"
    )
    if costs is None:
        return
    low, high = costs.checkpoint.pause_interval_s
    yield (
        f"{'checkpoint':<18}{costs.checkpoint.bytes / 1e12:,.3g} TB, a pause of {costs.checkpoint.pause_s:.2g} s "
        f"({low:.2g} to {high:.2g}), every {costs.checkpoint.every_s / 60:,.1f} min: "
        f"{costs.checkpoint.share:.2%} of the time"
    )
    low, high = costs.init_interval_s
    yield f"{'init':<18}{costs.init_s:,.0f} s ({low:,.0f} to {high:,.0f}), before run_start, by published runs on H100"
    yield f"{'goodput':<18}{costs.goodput:.1%} of the time, with failures at --device-mtbf-hours"
