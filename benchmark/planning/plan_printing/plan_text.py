"""The plan for people, below 120 columns."""

from collections.abc import Iterator

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.run_config import RunConfig
from benchmark.planning.dry_runs.dry_run import MEMORY_PARTS, RankReport
from benchmark.planning.run_plans.run_plan import RunPlan

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


def format_run_plan(plan: RunPlan, config: RunConfig) -> str:
    """The whole plan."""
    system = config.system
    title = (
        f"{config.benchmark.name} on {system.name}: {system.num_devices} devices = pipeline {system.pipeline_parallel} "
        f"x data {system.data_parallel} x tensor {system.tensor_parallel}\n"
        f"batch {config.benchmark.global_batch_size} = {config.num_microbatches} micro-batches of "
        f"{system.micro_batch_size} on each data-parallel device; recompute {system.recompute}, {plan.precision}"
    )
    blocks = [title.splitlines(), list(_memory(plan, config)), list(_messages(plan)), list(_times(plan, config))]
    blocks += [list(_parts(plan)), list(_besides(plan)), [f"- {assumption}" for assumption in plan.assumptions]]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _memory(plan: RunPlan, config: RunConfig) -> Iterator[str]:
    accelerator = config.system.accelerator
    memory_gb = ACCELERATORS[accelerator].memory_gb if accelerator else None
    if plan.dry_run is None:
        sizes = "  ".join(f"{kind} {size / 2**30:.2f}" for kind, size in plan.memory_bytes.items())
        yield f"memory of the rank that needs most, GiB: {sizes}"
        return
    yield f"{'memory per device, GiB':<28}" + "".join(f"{part:>12}" for part in MEMORY_PARTS)
    for report in plan.dry_run.reports:
        sizes = "".join(f"{getattr(report, f'{part}_bytes') / 2**30:12.2f}" for part in MEMORY_PARTS)
        share = f"  {report.peak_bytes / memory_gb / 1e9:.0%} of {accelerator}" if memory_gb else ""
        yield f"{report.kind:<28}{sizes}{share}"


def _messages(plan: RunPlan) -> Iterator[str]:
    """Of the kind of rank that sends most."""
    if plan.dry_run is None:
        return
    busiest: RankReport = max(plan.dry_run.reports, key=lambda report: sum(sent.bytes for sent in report.traffic))
    spread = "   GB/s if spread over the step" if plan.step_s else ""
    yield f"{f'messages, {busiest.kind}':<50}{'calls/step':>12}{'GiB/step':>12}{spread}"
    for sent in busiest.traffic:
        rate = f"{sent.bytes / 1e9 / plan.step_s:12.3f}" if plan.step_s else ""
        yield f"  {sent.kind:<24}{sent.axis:<24}{sent.calls:>12}{sent.bytes / 2**30:12.3f}{rate}"


def _times(plan: RunPlan, config: RunConfig) -> Iterator[str]:
    system, estimate = config.system, plan.estimate
    yield (
        f"{'pipeline bubble':<18}(p-1)/(m v) = {system.pipeline_parallel - 1}/({config.num_microbatches} x "
        f"{system.pipeline_chunks}) = {plan.bubble:.1%} of the working time, {plan.bubble / (1 + plan.bubble):.1%} of "
        "all"
    )
    if estimate is None:
        return
    speed = f"{estimate.tflops_per_device:,.4g} TFLOP/s per device"
    mfu = "" if estimate.mfu is None else f", MFU {estimate.mfu:.1%}{_interval(plan, 'mfu', 100, '%')}"
    step = f"{estimate.step_s:,.3g} s{_interval(plan, 'step_s')}"
    yield f"{'step':<18}{step} for {plan.step_flops:.3e} FLOPs at {speed}{mfu}"
    yield f"{'throughput':<18}{estimate.tokens_per_s:,.0f} tokens/s, {estimate.tokens_per_s_per_device:,.0f} per device"
    if estimate.evaluation_s is not None:
        every = f"every {config.benchmark.eval_interval} steps"
        yield f"{'evaluation':<18}{estimate.evaluation_s:,.3g} s{_interval(plan, 'evaluation_s')}, {every}"
    for name, length in zip(("run, at least", "run, at most"), estimate.lengths, strict=False):
        yield (
            f"{name if len(estimate.lengths) > 1 else 'run':<18}{length.seconds / 60:,.1f} min: {length.tokens:,} "
            f"tokens, {length.steps:,} steps, {length.evaluations} evaluations ({length.evaluation_share:.1%} of it)"
        )
    for reference in plan.reference_runs:
        low, high = reference.run_interval_s
        yield (
            f"{'run at batch':<18}{reference.global_batch_size}: {reference.run_s / 60:,.1f} min ({low / 60:,.1f} to "
            f"{high / 60:,.1f}), {reference.steps} steps of {reference.step_s:,.3g} s"
        )


def _interval(plan: RunPlan, name: str, factor: float = 1, unit: str = "") -> str:
    low, high = plan.intervals.get(name, (0.0, 0.0))
    return "" if low >= high else f" ({low * factor:,.3g} to {high * factor:,.3g}{unit})"


def _parts(plan: RunPlan) -> Iterator[str]:
    if plan.parts is None or plan.step_s is None:
        return
    yield f"{'parts of the step':<28}{'seconds':>10}{'share':>8}"
    for name, title in PART_NAMES.items():
        seconds = getattr(plan.parts, name)
        if seconds > 0.0005 * plan.step_s:
            yield f"  {title:<26}{seconds:>10.3f}{seconds / plan.step_s:>8.1%}"
    for influence in plan.influences:
        yield f"  {influence.constant}: {influence.low_s:+.2f} to {influence.high_s:+.2f} s within its range"


def _besides(plan: RunPlan) -> Iterator[str]:
    costs = plan.costs
    if costs is None:
        return
    low, high = costs.checkpoint.pause_interval_s
    yield (
        f"{'checkpoint':<18}{costs.checkpoint.bytes / 1e12:,.3g} TB, a pause of {costs.checkpoint.pause_s:.2g} s "
        f"({low:.2g} to {high:.2g}), every {costs.checkpoint.every_s / 60:,.1f} min"
    )
    low, high = costs.init_interval_s
    yield f"{'init':<18}{costs.init_s:,.0f} s ({low:,.0f} to {high:,.0f}), before run_start, by published runs on H100"
    yield f"{'goodput':<18}{costs.goodput:.1%} of the time, with failures at --device-mtbf-hours"
    if costs.with_failures_s is not None and costs.with_failures_interval_s is not None:
        low, high = (end / 60 for end in costs.with_failures_interval_s)
        yield f"{'with failures':<18}{costs.with_failures_s / 60:,.1f} min ({low:,.1f} to {high:,.1f})"
    for name, value, interval in (
        ("energy", costs.kwh, costs.kwh_interval),
        ("price", costs.dollars, costs.dollars_interval),
    ):
        if value is not None and interval is not None:
            unit = "kWh" if name == "energy" else "dollars"
            yield f"{name:<18}{value:,.0f} {unit} ({interval[0]:,.0f} to {interval[1]:,.0f})"
