"""Examine one kind of rank: run the training code on tensors without memory, with two numbers of micro-batches.

The difference of the two steps is the work of a micro-batch; the remainder comes once a step. From these follow a step
of any number of micro-batches and its memory.
"""

import gc
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.config.system_config import Collectives, System
from benchmark.planning.dry_run.rank_report import RankReport, split, traffic_of_step
from benchmark.planning.dry_run.tracker import OperatorCounts, Tracker
from benchmark.planning.fake_device.device_rules import HostWait
from benchmark.planning.fake_device.fake_gpu import FakeGpu
from benchmark.planning.fake_device.fake_world import fake_gpu_of, fake_tensors, fake_world
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.pipeline_order import PipelineShape, most_in_flight
from benchmark.training.engine.rank_device import weight_terms
from benchmark.training.engine.train_state import TrainState, empty_state
from benchmark.training.step import train_step
from model.flops import part_flops_per_token
from model.fused_kernel import run_by
from model.passes.chunk_pass import MicroBatch
from model.sharding import layers_of_chunks

MAY_WAIT = ("train_step",)
"""Functions in which the host may wait for the device in a step: once, for the loss and the norm."""
EVALUATED_AT_ONCE = 2
"""Number of an evaluation's micro-batches that are under way at once: they may alternate in pairs."""


def layers_of_rank(system: System, num_layers: int, pipeline_rank: int) -> int:
    by_pipeline_stage = layers_of_chunks(num_layers, system.num_pipeline_stages)
    return sum(len(layers) for layers in by_pipeline_stage[pipeline_rank :: system.pipeline_parallel])


def counted_micro_batches(system: System, micro_batches: int, pipeline_rank: int, terms: int = 1) -> tuple[int, int]:
    """Return two numbers of micro-batches: the first at which this rank holds as many as it ever does, and one group
    more. An interleaved pipeline takes micro-batches in groups and needs at least two groups: only in the second group
    do all forward passes meet backward passes. Elsewhere the ``terms`` that are added to a gradient at once are a
    group. ``micro_batches``: those of a step of the run."""
    ranks, chunks = system.pipeline_parallel, system.pipeline_chunks
    group = ranks if chunks > 1 else terms
    shape = PipelineShape(ranks, pipeline_rank, chunks, apart=system.tensor_parallel > 1)
    groups = math.ceil((most_in_flight(shape) + 1) / chunks / group)
    fewer = max(1, min(micro_batches, group * (groups if chunks == 1 else max(2, groups))))
    return fewer, fewer + group


@dataclass(frozen=True)
class _Stepped:
    """Counts of a step of one number of micro-batches."""

    counts: OperatorCounts
    peak: int
    after: int
    """Bytes after the step."""
    waits: list[HostWait]


def examine(benchmark: Benchmark, system: System, precision: Precision, kind: str, rank: int) -> RankReport:
    """Examine one rank, in a process that has no world yet. Whatever carries its collectives, NCCL's are counted.

    Raises DeviceFault if the code does something that a real device would refuse (fake_device/device_rules.py).
    """
    torch.set_num_threads(1)
    gc.disable()  # as in training: it is collected between steps
    gc.freeze()
    system, model = replace(system, collectives=Collectives()), benchmark.model
    micro_batches = system.num_microbatches(benchmark.global_batch_size)
    pipeline_rank = rank * system.pipeline_parallel // system.num_devices
    terms = weight_terms(precision, model, system)
    fewer, more = counted_micro_batches(system, micro_batches, pipeline_rank, terms)
    group = more - fewer
    with ExitStack() as stack:
        gpu = stack.enter_context(fake_gpu_of(system)) if system.device == "cuda" else None
        world = stack.enter_context(fake_world(system, rank))
        tracker = Tracker(
            {world.mesh.get_group(axis).group_name: axis for axis in world.mesh.mesh_dim_names or ()}, gpu
        )
        compiled = gpu is not None and system.compiled_kernels
        # one for the whole examination: tensors of another would be copied, and counted twice
        fake = fake_tensors() if gpu is None else nullcontext()
        progress = starting_progress(benchmark, 0)
        state = empty_state(benchmark, system, precision, world, progress, within=_counted(tracker, fake, compiled))
        with _counted(tracker, fake, compiled):
            shards, gathered = _sizes(state)
            state.optimizer.start_at(benchmark.start_iterations)
            _step(state, tracker, max(2, group), strict=False)  # allocates memory that later steps reuse
            first = _step(state, tracker, fewer, strict=True)
            second = _step(state, tracker, more, strict=True)
            evaluated = math.lcm(EVALUATED_AT_ONCE, group)
            tracker.restart()
            with _host_waits(gpu, strict=True, may_wait=()):
                state.pipeline.evaluate([_batch(state, tracker)] * evaluated, evaluated)
            gc.collect()
            after_evaluation = tracker.live_bytes - second.after
    per_micro_batch, per_step = split(first.counts, second.counts, fewer, group)
    layers, beyond = layers_of_rank(system, model.num_layers, pipeline_rank), micro_batches - fewer
    peak_growth, growth = (second.peak - first.peak) // group, (second.after - first.after) // group
    sums = 4 * (shards if system.shard_gradients and system.data_parallel > system.replicas else gathered)
    peak, values_bytes = first.peak + beyond * peak_growth, NUMBER_FORMATS[precision].value_bytes * gathered
    has_output = pipeline_rank == system.pipeline_parallel - 1
    per_token = part_flops_per_token(
        model, num_layers=layers, output_columns=model.padded_vocab_size if has_output else 0
    )
    return RankReport(
        kind=kind,
        rank=rank,
        layers=layers,
        counted=(fewer, more),
        parameter_bytes=4 * shards,
        optimizer_bytes=8 * shards,
        gathered_bytes=values_bytes,
        gradient_bytes=sums,
        activation_bytes=peak - 12 * shards - values_bytes - sums,
        peak_bytes=peak,
        after_step_bytes=first.after + beyond * growth,
        after_evaluation_bytes=after_evaluation,
        peak_bytes_per_micro_batch=peak_growth,
        after_step_bytes_per_micro_batch=growth,
        flops_per_micro_batch=per_micro_batch.flops,
        formula_flops_per_micro_batch=per_token * (system.micro_batch_size * model.seq_length) / system.tensor_parallel,
        traffic=traffic_of_step(per_micro_batch, per_step, micro_batches),
        per_micro_batch=per_micro_batch,
        per_step=per_step,
        host_waits=first.waits,
    )


def _step(state: TrainState, tracker: Tracker, micro_batches: int, *, strict: bool) -> _Stepped:
    """Run a step of ``micro_batches`` and count it afresh; while ``strict``, the host may wait only in ``MAY_WAIT``."""
    system = state.system
    state.progress.global_batch_size = micro_batches * system.micro_batch_size * system.data_parallel
    tracker.restart()
    with _host_waits(tracker.gpu, strict=strict, may_wait=MAY_WAIT) as waits:
        train_step(state, [_batch(state, tracker)] * micro_batches)
    gc.collect()
    return _Stepped(tracker.counts, tracker.peak_bytes, tracker.live_bytes, waits)


def _batch(state: TrainState, tracker: Tracker) -> MicroBatch:
    size = (state.system.micro_batch_size, state.benchmark.model.seq_length)
    tokens = torch.zeros(size, dtype=torch.int64)
    on_host = MicroBatch(tokens, tokens, torch.ones(size))
    return on_host.pinned() if tracker.gpu is not None else on_host


@contextmanager
def _counted(tracker: Tracker, fake: AbstractContextManager[Any], compiled: bool) -> Iterator[None]:
    """``compiled``: fused kernels count as one operator each."""
    with fake, tracker, run_by(tracker.run_fused) if compiled else nullcontext():
        yield


@contextmanager
def _host_waits(gpu: FakeGpu | None, *, strict: bool, may_wait: tuple[str, ...]) -> Iterator[list[HostWait]]:
    """Yield the list of the host's waits inside the block; while ``strict``, a wait outside the functions ``may_wait``
    ends the examination."""
    waits: list[HostWait] = []
    if gpu is None:
        yield waits
        return
    rules = gpu.rules
    rules.waits, rules.allowed, rules.strict = waits, may_wait, strict
    yield waits
    rules.waits, rules.strict = [], False


def _sizes(state: TrainState) -> tuple[int, int]:
    """Return the number of elements in this process's parameter shards, and in the gathered parameters."""
    parameters = state.parameters.values()
    return sum(parameter.to_local().numel() for parameter in parameters), sum(map(_gathered_size, parameters))


def _gathered_size(parameter: DTensor) -> int:
    """Return the number of elements in one tensor-parallel rank's part of a parameter."""
    _, tensor_parallel, _ = parameter.device_mesh.shape
    _, over_tensor, _ = parameter.placements
    return parameter.numel() if over_tensor.is_replicate() else parameter.numel() // tensor_parallel
