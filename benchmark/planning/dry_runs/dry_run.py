"""``train --dry-run``: one step of each kind of rank, by the code that trains, in a world that is not there.

Matrix products, collectives, the pipeline's schedule and Adam all run, on tensors that pretend to be on the system's
devices and have no values (fake/). What differs from a real run: fewer micro-batches, of two different numbers, from
which a step of any number follows (step_counts.py). Not in the figures: the CUDA context, NCCL's buffers and what the
allocator loses between tensors, for which ``RESERVE`` is left.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.run_config import RunConfig
from benchmark.planning.dry_runs.step_counts import RankCounts, StepCounts, step_counts
from benchmark.planning.dry_runs.work_counts import MessageCount
from model.flops import part_flops_per_token

RESERVE = 0.1
"""Part of the device's memory that is left for what is not counted."""


@dataclass(frozen=True)
class AxisTraffic:
    """Messages of one kind along one axis of the mesh, in a whole step of the benchmark's global batch."""

    kind: str
    axis: str
    calls: int
    bytes: int


@dataclass(frozen=True)
class RankReport:
    """One kind of rank; bytes at the peak of a step."""

    kind: str
    rank: int
    layers: int
    parameter_bytes: int
    """FP32 shards."""
    optimizer_bytes: int
    """Adam's moments."""
    gathered_bytes: int
    """Parameters gathered for use, in the precision of the computation."""
    gradient_bytes: int
    """FP32 gradients before they are reduced."""
    activation_bytes: int
    """The rest of the peak: activations of the micro-batches under way, and what operations need for the moment."""
    peak_bytes: int
    flops_per_micro_batch: int
    """Counted, recomputation included."""
    formula_flops_per_micro_batch: float
    """By model/flops.py for this rank's part, padding columns of the output included, recomputation not."""
    traffic: list[AxisTraffic]


@dataclass(frozen=True)
class DryRun:
    reports: list[RankReport]
    num_microbatches: int
    """Most that were run; a step has more where these are fewer."""
    complaint: str | None
    """Why it does not fit the devices' memory."""
    counts: StepCounts
    """All that was counted, of the same ranks."""


def dry_run(config: RunConfig) -> DryRun:
    """Examine one rank of each kind of a run whose model and batch can be dealt out (``RunConfig.require_fit``).

    Raises DeviceFault when the code does what the device would not forgive.
    """
    counts = step_counts(config)
    reports = [_report(config, rank) for rank in counts.ranks]
    most = max(max(rank.counted) for rank in counts.ranks)
    return DryRun(reports, most, _complaint(config, reports), counts)


def _report(config: RunConfig, counts: RankCounts) -> RankReport:
    system, model, memory = config.system, config.benchmark.model, counts.memory
    has_output = counts.rank * system.pipeline_parallel // system.num_devices == system.pipeline_parallel - 1
    per_token = part_flops_per_token(
        model, num_layers=counts.layers, output_columns=model.padded_vocab_size if has_output else 0
    )
    tokens = system.micro_batch_size * model.seq_length
    return RankReport(
        kind=counts.kind,
        rank=counts.rank,
        layers=counts.layers,
        parameter_bytes=memory.parameters,
        optimizer_bytes=memory.optimizer,
        gathered_bytes=memory.gathered,
        gradient_bytes=memory.gradients,
        activation_bytes=memory.activations,
        peak_bytes=memory.peak,
        flops_per_micro_batch=counts.per_micro_batch.flops,
        formula_flops_per_micro_batch=per_token * tokens / system.tensor_parallel,
        traffic=_traffic(config, counts),
    )


def _traffic(config: RunConfig, counts: RankCounts) -> list[AxisTraffic]:
    """Messages of a whole step. What is received was sent by another rank."""
    calls: dict[tuple[str, str], int] = {}
    sizes: dict[tuple[str, str], int] = {}
    for times, message in _messages(config, counts):
        key = message.kind, message.axis
        calls[key] = calls.get(key, 0) + times * message.calls
        sizes[key] = sizes.get(key, 0) + times * message.calls * message.bytes
    return [AxisTraffic(*key, calls[key], sizes[key]) for key in sorted(calls) if key[0] != "receive"]


def _messages(config: RunConfig, counts: RankCounts) -> Iterator[tuple[int, MessageCount]]:
    """How many times a step has each record."""
    yield from ((config.num_microbatches, message) for message in counts.per_micro_batch.messages)
    yield from ((1, message) for message in counts.per_step.messages)


def _complaint(config: RunConfig, reports: list[RankReport]) -> str | None:
    """Numbers, when the most demanding rank does not fit."""
    memory_gb = ACCELERATORS[config.system.accelerator].memory_gb if config.system.accelerator else None
    if memory_gb is None:
        return None
    memory = memory_gb * 1e9
    worst = max(reports, key=lambda report: report.peak_bytes)
    if worst.peak_bytes <= memory * (1 - RESERVE):
        return None
    return (
        f"rank {worst.rank} ({worst.kind}) needs {worst.peak_bytes / 1e9:.1f} GB: parameters "
        f"{worst.parameter_bytes / 1e9:.1f}, optimizer {worst.optimizer_bytes / 1e9:.1f}, gathered "
        f"{worst.gathered_bytes / 1e9:.1f}, gradients {worst.gradient_bytes / 1e9:.1f}, activations "
        f"{worst.activation_bytes / 1e9:.1f}; {config.system.accelerator} has {memory / 1e9:.0f} GB, of which "
        f"{RESERVE:.0%} are left for CUDA, NCCL and gaps. Raise --tensor-parallel, --pipeline-parallel or --nodes, "
        "choose --recompute selective or full, or lower --micro-batch-size"
    )


MEMORY_PARTS = ("parameter", "optimizer", "gathered", "gradient", "activation", "peak")


def format_dry_run(result: DryRun, config: RunConfig) -> str:
    """The reports as text."""
    system = config.system
    lines = [
        f"{system.name}: {system.num_devices} devices = pipeline {system.pipeline_parallel} x data "
        f"{system.data_parallel} ({system.replicas} replicas) x tensor {system.tensor_parallel}; micro-batch "
        f"{system.micro_batch_size}, {config.num_microbatches} micro-batches per step, "
        f"recompute {system.recompute}"
    ]
    for report, counts in zip(result.reports, result.counts.ranks, strict=True):
        few, more = counts.counted
        lines.append(
            f"rank {report.rank}, {report.kind} ({report.layers} layers; {few} and {more} micro-batches were run)"
        )
        sizes = {name: getattr(report, f"{name}_bytes") / 2**30 for name in MEMORY_PARTS}
        lines += [f"  {name:<12}{size:9.2f} GiB" for name, size in sizes.items()]
        lines.append(f"  {'':<12}{_growth(counts)}")
        ratio = report.flops_per_micro_batch / report.formula_flops_per_micro_batch
        lines.append(
            f"  {'FLOPs':<12}{report.flops_per_micro_batch / 1e12:9.3f} TFLOP per micro-batch, "
            f"{ratio:.4f} of the formula's {report.formula_flops_per_micro_batch / 1e12:.3f}"
        )
        lines += [*_kernel_lines(counts), *_message_lines(config, counts)]
        for wait in counts.host_waits:
            lines.append(f"  the host waits once a step: {wait.what} at {wait.where}")
    return "\n".join(lines)


LOSS_BYTES = 64
"""Growth with a micro-batch that is its loss, which is kept; an allocation begins at 512 bytes, here it does not."""


def _growth(counts: RankCounts) -> str:
    memory = counts.memory
    growth = memory.peak_per_micro_batch, memory.after_step_per_micro_batch
    if max(growth) <= LOSS_BYTES:
        return "whatever the number of micro-batches"
    in_step, kept = (size / 2**20 for size in growth)
    return f"each further micro-batch adds {in_step:.3f} MiB to the peak, {kept:.3f} MiB are left after the step"


def _kernel_lines(counts: RankCounts) -> Iterator[str]:
    """Kernels by kind: of a micro-batch, and of what comes once a step."""
    yield f"  {'kernels':<24}{'per micro-batch':>22}{'moved, GB':>12}{'once a step':>14}{'moved, GB':>12}"
    once = {kernel.kind: kernel for kernel in counts.per_step.kernels}
    each = {kernel.kind: kernel for kernel in counts.per_micro_batch.kernels}
    for kind in dict.fromkeys((*each, *once)):
        yield f"    {kind:<22}" + "".join(
            f"{found.calls:>{width}}{found.bytes / 1e9:12.3f}" if (found := table.get(kind)) else f"{'':>{width + 12}}"
            for table, width in ((each, 22), (once, 14))
        )


def _message_lines(config: RunConfig, counts: RankCounts) -> Iterator[str]:
    """Messages by kind and axis, and what hides them: what the compute stream has queued when it waits for them."""
    by_axis: dict[tuple[str, str], list[tuple[int, MessageCount]]] = {}
    for times, message in _messages(config, counts):
        by_axis.setdefault((message.kind, message.axis), []).append((times, message))
    yield f"  {'messages':<24}{'axis':<22}{'calls/step':>10}{'GiB/step':>11}{'exposed':>9}{'TFLOP beside':>14}"
    for (kind, axis), some in sorted(by_axis.items()):
        calls = sum(times * message.calls for times, message in some)
        size = sum(times * message.calls * message.bytes for times, message in some) / 2**30
        alone = sum(times * message.alone for times, message in some)
        beside = sum(times * message.flops_beside for times, message in some) / 1e12
        yield f"    {kind:<24}{axis:<22}{calls:>10}{size:11.3f}{alone:>9}{beside:14.3f}"
