"""``train --dry-run``: one step of each kind of rank, by the code that trains, in a world that is not there.

Matrix products, collectives, the pipeline's schedule and Adam all run, on tensors that pretend to be on the system's
devices and have no values (fake/). What differs from a real run: fewer micro-batches, of two different numbers, from
which a step of any number follows (examine_rank.py). Not in the figures: the CUDA context, NCCL's buffers and what the
allocator loses between tensors, for which ``RESERVE`` is left.
"""

import importlib
import multiprocessing
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmark.config.run_config import RunConfig
from benchmark.planning.dry_runs.examine_rank import examine, layers_of_rank
from benchmark.planning.dry_runs.rank_report import RankReport
from benchmark.planning.fake.device_rules import DeviceFault
from stage.errors import InputError

RESERVE = 0.1
"""Part of the device's memory that is left for what is not counted."""
MEMORY_PARTS = ("parameter", "optimizer", "gathered", "gradient", "activation", "peak")
AT_ONCE = 4
"""Ranks examined at a time, each in a process of its own of less than 1 GB: PyTorch makes one world per process. All
kinds there usually are: three that share two cores are done sooner than two and then one."""


@dataclass(frozen=True)
class DryRun:
    reports: list[RankReport]
    num_microbatches: int
    """Most that were run; a step has more where these are fewer."""
    complaint: str | None
    """Why it does not fit the devices' memory."""


def dry_run(config: RunConfig) -> DryRun:
    """Examine one rank of each kind of a run whose model and batch can be dealt out (``RunConfig.require_fit``).

    Raises DeviceFault when the code does what the device would not forgive (fake/device_rules.py).
    """
    if config.system.device == "cpu":
        importlib.import_module("torch._dynamo")  # fake tensors need it: imported here, not in each process below
    kinds, reports = list(kinds_of_ranks(config).items()), list[RankReport]()
    for first in range(0, len(kinds), AT_ONCE):
        reports += _examine_apart(config, kinds[first : first + AT_ONCE])
    return DryRun(reports, max(max(report.counted) for report in reports), _complaint(config, reports))


def kinds_of_ranks(config: RunConfig) -> dict[str, int]:
    """Ranks that differ: in their number of layers, and in what the ends of the pipeline have besides."""
    system = config.system
    if system.pipeline_parallel == 1:
        return {"every rank": 0}
    per_pipeline_rank, last = system.num_devices // system.pipeline_parallel, system.pipeline_parallel - 1
    kinds = {"first of the pipeline": 0}
    for rank in range(1, last):
        kinds.setdefault(f"between, {layers_of_rank(config, rank)} layers", rank * per_pipeline_rank)
    return {**kinds, "last of the pipeline": last * per_pipeline_rank}


def _examine_apart(config: RunConfig, kinds: Sequence[tuple[str, int]]) -> list[RankReport]:
    """Each in a process of its own, forked here: a pool would fork from a thread, which PyTorch's do not survive."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in kinds]
    started = [
        context.Process(target=_send_examined, args=(sender, config, kind, rank), daemon=True)
        for (_, sender), (kind, rank) in zip(pipes, kinds, strict=True)
    ]
    for process in started:
        process.start()
    found = []
    try:
        for (receiver, sender), (kind, rank) in zip(pipes, kinds, strict=True):
            sender.close()
            try:
                report, failure = receiver.recv()
            except EOFError:
                raise ChildProcessError(f"the process that examines rank {rank} ({kind}) has died") from None
            if failure is not None:
                raise failure
            found.append(report)
    finally:
        for process in started:
            process.kill()
            process.join()
    return found


def _send_examined(sender: Connection, config: RunConfig, kind: str, rank: int) -> None:
    """Send the report and no failure, or the failure: as it is where it is for people, else what it says."""
    try:
        sender.send((examine(config, kind, rank), None))
    except (DeviceFault, InputError) as failure:
        sender.send((None, failure))
    except Exception:
        sender.send((None, RuntimeError(traceback.format_exc())))


def _complaint(config: RunConfig, reports: list[RankReport]) -> str | None:
    """Numbers, when the most demanding rank does not fit."""
    memory_gb = config.system.memory_gb
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
