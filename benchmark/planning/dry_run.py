"""``train --dry-run``: one step of each kind of rank, by the code that trains, in a world that is not there.

Matrix products, collectives, PyTorch's pipeline schedule, FSDP and Adam all run, on tensors that have shapes but no
values. What differs from a real run: fewer micro-batches (enough to fill the pipeline, and twice that no more), and
the operators of a CPU, whose attention keeps what a GPU's keeps. Not in the figures: the CUDA context, NCCL's buffers
and what the allocator loses between tensors, for which ``RESERVE`` is left.
"""

import dataclasses
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.run_config import RunConfig
from benchmark.planning.fake_world import fake_tensors, fake_world
from benchmark.planning.tracker import GRADIENT_SUMS, Tracker
from benchmark.training.engine.micro_batches import MicroBatch
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import TrainState, empty_state
from benchmark.training.step import accumulate, update
from model.flops import part_flops_per_token
from model.model_parts import layers_of_pipeline_stages

RESERVE = 0.1
"""Part of the device's memory that is left for what is not counted."""
AT_ONCE = 2
"""Ranks examined at a time, each in a process of its own of less than 1 GB: PyTorch makes one world per process."""


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
    """That were run; a step has more where these are fewer."""
    complaint: str | None
    """Why it does not fit the devices' memory."""


def dry_run(config: RunConfig) -> DryRun:
    """Examine one rank of each kind of a run whose model and batch can be dealt out (``RunConfig.require_fit``)."""
    ranks = _kinds(config)
    with multiprocessing.get_context("fork").Pool(AT_ONCE, maxtasksperchild=1) as pool:
        reports = pool.starmap(_examine, [(config, *kind) for kind in ranks.items()], chunksize=1)
    return DryRun(reports, _enough_microbatches(config), _complaint(config, reports))


def _kinds(config: RunConfig) -> dict[str, int]:
    """Ranks that differ: in their number of layers, and in what the ends of the pipeline have besides."""
    system = config.system
    if system.pipeline_parallel == 1:
        return {"every rank": 0}
    per_pipeline_rank, last = system.num_devices // system.pipeline_parallel, system.pipeline_parallel - 1
    kinds = {"first of the pipeline": 0}
    for rank in range(1, last):
        kinds.setdefault(f"between, {_layers(config, rank)} layers", rank * per_pipeline_rank)
    return {**kinds, "last of the pipeline": last * per_pipeline_rank}


def _layers(config: RunConfig, pipeline_rank: int) -> int:
    by_pipeline_stage = layers_of_pipeline_stages(config.benchmark.model.num_layers, config.system.num_pipeline_stages)
    return sum(len(layers) for layers in by_pipeline_stage[pipeline_rank :: config.system.pipeline_parallel])


def _enough_microbatches(config: RunConfig) -> int:
    """As many as a pipeline of this length holds at a time; two without a pipeline."""
    system = config.system
    enough = 2 * system.pipeline_parallel if system.pipeline_chunks > 1 else max(2, system.pipeline_parallel)
    return min(config.num_microbatches, enough)


def _examine(config: RunConfig, kind: str, rank: int) -> RankReport:
    torch.set_num_threads(1)
    batches, system = _enough_microbatches(config), config.system
    size = batches * system.micro_batch_size * system.data_parallel
    small = dataclasses.replace(config, benchmark=dataclasses.replace(config.benchmark, global_batch_size=size))
    with fake_world(system, rank) as world:
        tracker = Tracker({world.mesh[axis].get_group().group_name: axis for axis in world.mesh.mesh_dim_names or ()})
        without_memory = fake_tensors()

        @contextmanager
        def counted() -> Iterator[None]:
            with without_memory, tracker:
                yield

        state = empty_state(small, world, starting_progress(small.benchmark, 0), within=counted())
        with counted():
            state.optimizer.start_at(small.benchmark.start_iterations)
            shape = system.micro_batch_size, config.benchmark.model.seq_length
            tokens = torch.zeros(shape, dtype=torch.int64)
            micro_batches = [MicroBatch(tokens, tokens, torch.ones(shape))] * batches
            for _ in range(2):  # the first step also makes what later ones use again
                tracker.restart()
                accumulate(state, micro_batches)
                update(state, norm=2.0, rate=1e-5)
                state.optimizer.clear_gradients()
        return _report(config, kind, rank, state, tracker, batches)


def _report(config: RunConfig, kind: str, rank: int, state: TrainState, tracker: Tracker, batches: int) -> RankReport:
    system, model = config.system, config.benchmark.model
    shards = 4 * sum(value.to_local().numel() for value in state.parameters.values())
    moments = 2 * shards
    kept = system.keep_unsharded or system.pipeline_parallel > 1
    in_use = sum(_parameters_in_use(part, kept=kept) for part in state.model_parts)
    gathered, gradients = (2 if config.precision == "bf16" else 4) * in_use, 4 * in_use
    pipeline_rank = rank * system.pipeline_parallel // system.num_devices
    has_output = pipeline_rank == system.pipeline_parallel - 1
    per_token = part_flops_per_token(
        model,
        num_layers=_layers(config, pipeline_rank),
        output_columns=model.padded_vocab_size if has_output else 0,
    )
    tokens = system.micro_batch_size * model.seq_length
    return RankReport(
        kind=kind,
        rank=rank,
        layers=_layers(config, pipeline_rank),
        parameter_bytes=shards,
        optimizer_bytes=moments,
        gathered_bytes=gathered,
        gradient_bytes=gradients,
        activation_bytes=tracker.peak_bytes - shards - moments - gathered - gradients,
        peak_bytes=tracker.peak_bytes,
        flops_per_micro_batch=tracker.flops // batches,
        formula_flops_per_micro_batch=per_token * tokens / system.tensor_parallel,
        traffic=_whole_step(config, tracker, batches, kept=kept),
    )


def _parameters_in_use(part: nn.Module, *, kept: bool) -> int:
    """Numbers that are gathered at the same time: of all blocks, or of the largest two and what is in no block."""
    by_block: dict[str, int] = {}
    for name, parameter in part.named_parameters():
        block = name.split(".")[2] if name.startswith("encoder.layers.") else "none"
        by_block[block] = by_block.get(block, 0) + _gathered_size(parameter)
    outside = by_block.pop("none", 0)
    blocks = sorted(by_block.values(), reverse=True)
    return outside + sum(blocks if kept else blocks[:2])


def _gathered_size(parameter: nn.Parameter) -> int:
    """Numbers of a parameter's part of one tensor-parallel rank."""
    assert isinstance(parameter, DTensor)
    names = parameter.device_mesh.mesh_dim_names or ()
    axis = names.index("tensor") if "tensor" in names else None
    if axis is None or parameter.placements[axis].is_replicate():
        return parameter.numel()
    return parameter.numel() // parameter.device_mesh.size(axis)


def _whole_step(config: RunConfig, tracker: Tracker, batches: int, *, kept: bool) -> list[AxisTraffic]:
    """Messages of all micro-batches of a step: those between data-parallel ranks are sent once where all is kept."""
    traffic = []
    for (kind, axis), counted in sorted(tracker.traffic.items()):
        once = axis in ("all", "ends of the pipeline") or (kept and (axis != "tensor" or kind == GRADIENT_SUMS))
        once = once and axis != "pipeline"
        times = 1.0 if once else config.num_microbatches / batches
        traffic.append(AxisTraffic(kind, axis, round(counted.calls * times), round(counted.bytes * times)))
    return traffic


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
        f"{system.micro_batch_size}, {config.num_microbatches} micro-batches per step ({result.num_microbatches} run), "
        f"recompute {system.recompute}"
    ]
    for report in result.reports:
        lines.append(f"rank {report.rank}, {report.kind} ({report.layers} layers)")
        sizes = {name: getattr(report, f"{name}_bytes") / 2**30 for name in MEMORY_PARTS}
        lines += [f"  {name:<12}{size:9.2f} GiB" for name, size in sizes.items()]
        ratio = report.flops_per_micro_batch / report.formula_flops_per_micro_batch
        lines.append(
            f"  {'FLOPs':<12}{report.flops_per_micro_batch / 1e12:9.3f} TFLOP per micro-batch, "
            f"{ratio:.4f} of the formula's {report.formula_flops_per_micro_batch / 1e12:.3f}"
        )
        for sent in report.traffic:
            size = f"{sent.bytes / 2**30:10.3f} GiB per step"
            lines.append(f"  {sent.kind:<24}{sent.axis:<22}{sent.calls:>7} calls {size}")
    return "\n".join(lines)
