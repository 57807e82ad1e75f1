"""``train --dry-run`` runs one step of each kind of rank with the training code, on fake tensors and a fake world.

Matrix products, collectives, the pipeline's schedule and Adam all run, on tensors that pretend to be on the system's
devices and have no values (fake_device/). A dry run differs from a real run in the number of micro-batches: it runs two
small numbers, from which a step of any number follows (examine_rank.py). The figures leave out the CUDA context, NCCL's
buffers and the allocator's gaps between tensors; ``RESERVE`` is left for these.
"""

import importlib
import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from benchmark.config.accelerators import RESERVE
from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.planning.dry_run.examine_rank import examine, layers_of_rank
from benchmark.planning.dry_run.rank_report import RankReport, messages_of_step
from benchmark.planning.fake_device.device_rules import DeviceFault, UnknownQuestion
from foundation.errors import InputError
from foundation.plain_text import counted, folded

LOSS_BYTES = 64
"""Largest growth per micro-batch that is taken for its kept loss. CUDA's allocations begin at 512 bytes; those of the
dry run do not."""
MEMORY_PARTS = ("parameter", "optimizer", "gathered", "gradient", "activation", "peak")


@dataclass(frozen=True)
class DryRun:
    reports: list[RankReport]
    num_microbatches: int
    """Largest number of micro-batches that was run; the step of the run may have more."""
    complaint: str | None
    """Reason why the run does not fit the devices' memory; None if it fits."""


def dry_run(benchmark: Benchmark, system: System, precision: Precision) -> DryRun:
    """Examine one rank of each kind; the run must have passed ``RunConfig.require_fit``.

    Raises DeviceFault if the code does something that a real device would refuse (fake_device/device_rules.py), and
    InputError if this version of PyTorch asks the fake device for something that it does not know.
    """
    if system.device == "cpu":
        importlib.import_module("torch._dynamo")  # fake tensors need it: imported here, not in each process below
    kinds = kinds_of_ranks(system, benchmark.model.num_layers)
    examinations = [partial(examine, benchmark, system, precision, kind, rank) for kind, rank in kinds.items()]
    reports = _examine_apart(examinations)
    return DryRun(reports, max(max(report.counted) for report in reports), _complaint(system, reports))


def kinds_of_ranks(system: System, num_layers: int) -> dict[str, int]:
    """Return one rank of each kind. Kinds differ in number of layers and in parts at the pipeline's ends."""
    if system.pipeline_parallel == 1:
        return {"every rank": 0}
    per_pipeline_rank, last = system.num_devices // system.pipeline_parallel, system.pipeline_parallel - 1
    kinds = {"first of the pipeline": 0}
    for rank in range(1, last):
        kinds.setdefault(f"between, {layers_of_rank(system, num_layers, rank)} layers", rank * per_pipeline_rank)
    return {**kinds, "last of the pipeline": last * per_pipeline_rank}


def _examine_apart(examinations: Sequence[Callable[[], RankReport]]) -> list[RankReport]:
    """Examine each kind in a process of its own, of less than 1 GB, because PyTorch makes one world per process.

    All are forked at once from this thread: a pool would fork from another thread, and PyTorch's threads do not survive
    that. There are at most four kinds.
    """
    context, reports = multiprocessing.get_context("fork"), list[RankReport]()
    with ExitStack() as processes:
        receivers = []
        for examination in examinations:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_send_examined, args=(sender, examination), daemon=True)
            process.start()
            sender.close()
            processes.callback(process.join)
            processes.callback(process.kill)
            receivers.append(receiver)
        for number, receiver in enumerate(receivers):
            try:
                answer = receiver.recv()
            except EOFError:
                raise ChildProcessError(f"the process that examines kind {number} of the ranks has died") from None
            if isinstance(answer, Exception):
                raise answer
            reports.append(answer)
    return reports


def _send_examined(sender: Connection, examination: Callable[[], RankReport]) -> None:
    """Send the report or the failure. Failures meant for people are sent whole, others as text."""
    try:
        sender.send(examination())
    except UnknownQuestion as unknown:
        sender.send(InputError(str(unknown)))
    except (DeviceFault, InputError) as failure:
        sender.send(failure)
    except Exception:
        sender.send(RuntimeError(traceback.format_exc()))


def _complaint(system: System, reports: list[RankReport]) -> str | None:
    """Return the numbers of the most demanding rank if it does not fit; None if all ranks fit."""
    memory_gb = system.memory_gb
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
        f"{worst.activation_bytes / 1e9:.1f}; {system.accelerator} has {memory / 1e9:.0f} GB, of which "
        f"{RESERVE:.0%} are left for CUDA, NCCL and gaps. Raise --tensor-parallel, --pipeline-parallel or --nodes, "
        "choose --recompute selective or full, or lower --micro-batch-size"
    )


def format_dry_run(result: DryRun, system: System, micro_batches: int) -> str:
    """Return the reports of a dry run as text; ``micro_batches``: those of a step of the run."""
    lines = [
        f"{system.name}: {system.num_devices} devices = pipeline {system.pipeline_parallel} x data "
        f"{system.data_parallel} ({counted(system.replicas, 'replica')}) x tensor {system.tensor_parallel}; "
        f"micro-batch {system.micro_batch_size}, {micro_batches} micro-batches per step, recompute {system.recompute}"
    ]
    for report in result.reports:
        fewer, more = report.counted
        layers = "" if report.kind.endswith(" layers") else f"{report.layers} layers; "
        lines.append(f"rank {report.rank}, {report.kind} ({layers}{fewer} and {more} micro-batches were run)")
        unit, unit_bytes = ("GiB", 2**30) if report.peak_bytes >= 2**30 else ("MiB", 2**20)
        sizes = {name: getattr(report, f"{name}_bytes") / unit_bytes for name in MEMORY_PARTS}
        lines += [f"  {name:<12}{size:9.2f} {unit}" for name, size in sizes.items()]
        lines.append(f"  {'':<12}{_growth(report)}")
        ratio = report.flops_per_micro_batch / report.formula_flops_per_micro_batch
        lines.append(
            f"  {'FLOPs':<12}{report.flops_per_micro_batch / 1e12:9.3f} TFLOP per micro-batch, "
            f"{ratio:.4f} of the formula's {report.formula_flops_per_micro_batch / 1e12:.3f}"
        )
        lines += [*_kernel_lines(report), *_message_lines(micro_batches, report)]
        for wait in report.host_waits:
            lines.append(f"  the host waits once a step: {wait.what} at {wait.where}")
    return folded("\n".join(lines))


def _growth(report: RankReport) -> str:
    growth = report.peak_bytes_per_micro_batch, report.after_step_bytes_per_micro_batch
    if max(growth) <= LOSS_BYTES:
        return "the same for any number of micro-batches"
    in_step, after_step = (size / 2**20 for size in growth)
    return f"each further micro-batch adds {in_step:.3f} MiB to the peak, {after_step:.3f} MiB are left after the step"


def _kernel_lines(report: RankReport) -> Iterator[str]:
    """Yield the kernels by kind, for one micro-batch and for the work that comes once a step."""
    yield f"  {'kernels':<16}{'per micro-batch':>16}{'GB moved':>12}{'once a step':>14}{'GB moved':>12}"
    per_step = {kernel.kind: kernel for kernel in report.per_step.kernels}
    per_micro_batch = {kernel.kind: kernel for kernel in report.per_micro_batch.kernels}
    for kind in dict.fromkeys((*per_micro_batch, *per_step)):
        yield f"    {kind:<14}" + "".join(
            f"{kernel.calls:>{width}}{kernel.bytes / 1e9:12.3f}"
            if (kernel := kernels.get(kind))
            else f"{'':>{width + 12}}"
            for kernels, width in ((per_micro_batch, 16), (per_step, 14))
        )
    if any(kernel.calls < 0 for kernel in per_step.values()):
        yield "    less than 0 once a step: the first micro-batch of a step has fewer than the others"


def _message_lines(micro_batches: int, report: RankReport) -> Iterator[str]:
    """Yield the messages by kind and axis, and the work that the stream has queued when it waits for them."""
    yield f"  {'messages':<18}{'axis':<10}{'calls/step':>12}{'GiB/step':>12}{'exposed':>10}{'TFLOP beside':>14}"
    for message in messages_of_step(report.per_micro_batch, report.per_step, micro_batches).values():
        size, tflop = message.bytes / 2**30, message.flops_beside / 1e12
        yield f"    {message.kind:<16}{message.axis:<10}{message.calls:>12}{size:12.3f}{message.alone:>10}{tflop:14.3f}"
