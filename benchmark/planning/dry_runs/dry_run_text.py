"""Format a dry run for people."""

from collections.abc import Iterator

from benchmark.config.run_config import RunConfig
from benchmark.planning.dry_runs.dry_run import MEMORY_PARTS, DryRun
from benchmark.planning.dry_runs.rank_report import RankReport, messages_of_step

LOSS_BYTES = 64
"""Largest growth per micro-batch that is taken for its kept loss. CUDA's allocations begin at 512 bytes; those of the
dry run do not."""


def format_dry_run(result: DryRun, config: RunConfig) -> str:
    """Return the reports of a dry run as text."""
    system = config.system
    lines = [
        f"{system.name}: {system.num_devices} devices = pipeline {system.pipeline_parallel} x data "
        f"{system.data_parallel} ({system.replicas} replicas) x tensor {system.tensor_parallel}; micro-batch "
        f"{system.micro_batch_size}, {config.num_microbatches} micro-batches per step, "
        f"recompute {system.recompute}"
    ]
    for report in result.reports:
        few, more = report.counted
        lines.append(
            f"rank {report.rank}, {report.kind} ({report.layers} layers; {few} and {more} micro-batches were run)"
        )
        sizes = {name: getattr(report, f"{name}_bytes") / 2**30 for name in MEMORY_PARTS}
        lines += [f"  {name:<12}{size:9.2f} GiB" for name, size in sizes.items()]
        lines.append(f"  {'':<12}{_growth(report)}")
        ratio = report.flops_per_micro_batch / report.formula_flops_per_micro_batch
        lines.append(
            f"  {'FLOPs':<12}{report.flops_per_micro_batch / 1e12:9.3f} TFLOP per micro-batch, "
            f"{ratio:.4f} of the formula's {report.formula_flops_per_micro_batch / 1e12:.3f}"
        )
        lines += [*_kernel_lines(report), *_message_lines(config, report)]
        for wait in report.host_waits:
            lines.append(f"  the host waits once a step: {wait.what} at {wait.where}")
    return "\n".join(lines)


def _growth(report: RankReport) -> str:
    growth = report.peak_bytes_per_micro_batch, report.after_step_bytes_per_micro_batch
    if max(growth) <= LOSS_BYTES:
        return "the same for any number of micro-batches"
    in_step, kept = (size / 2**20 for size in growth)
    return f"each further micro-batch adds {in_step:.3f} MiB to the peak, {kept:.3f} MiB are left after the step"


def _kernel_lines(report: RankReport) -> Iterator[str]:
    """Yield the kernels by kind, for one micro-batch and for the work that comes once a step."""
    yield f"  {'kernels':<24}{'per micro-batch':>22}{'moved, GB':>12}{'once a step':>14}{'moved, GB':>12}"
    once = {kernel.kind: kernel for kernel in report.per_step.kernels}
    each = {kernel.kind: kernel for kernel in report.per_micro_batch.kernels}
    for kind in dict.fromkeys((*each, *once)):
        yield f"    {kind:<22}" + "".join(
            f"{found.calls:>{width}}{found.bytes / 1e9:12.3f}" if (found := table.get(kind)) else f"{'':>{width + 12}}"
            for table, width in ((each, 22), (once, 14))
        )


def _message_lines(config: RunConfig, report: RankReport) -> Iterator[str]:
    """Yield the messages by kind and axis, and the work that the compute stream has queued when it waits for them."""
    yield f"  {'messages':<24}{'axis':<22}{'calls/step':>10}{'GiB/step':>11}{'exposed':>9}{'TFLOP beside':>14}"
    for one in messages_of_step(report.per_micro_batch, report.per_step, config.num_microbatches).values():
        size, beside = one.bytes / 2**30, one.flops_beside / 1e12
        yield f"    {one.kind:<24}{one.axis:<22}{one.calls:>10}{size:11.3f}{one.alone:>9}{beside:14.3f}"
