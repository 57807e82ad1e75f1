"""What a step asks of each kind of rank, counted: products by shape, bytes of kernels, messages, waits, memory.

The code that trains runs on fake tensors, with two numbers of micro-batches. What a micro-batch takes is the
difference; what is left comes once a step. So a step of any number of micro-batches is known, and whether memory
depends on it.
"""

import dataclasses
import gc
import importlib
import math
import multiprocessing
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from benchmark.config.run_config import RunConfig
from benchmark.planning.dry_runs.fake_world import fake_gpu_of, fake_tensors, fake_world
from benchmark.planning.dry_runs.tracker import OperatorCounts, Tracker
from benchmark.planning.dry_runs.work_counts import WorkCounts, split
from benchmark.planning.fake.fake_gpu import FakeGpu
from benchmark.planning.fake.host_waits import DeviceFault, HostWait
from benchmark.training.engine.micro_batches import MicroBatch
from benchmark.training.engine.pipeline_order import PipelineShape, most_in_flight
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import TrainState, empty_state
from benchmark.training.step import train_step
from model.sharding import layers_of_pipeline_stages
from stage.errors import InputError

AT_ONCE = 4
"""Ranks examined at a time, each in a process of its own of less than 1 GB: PyTorch makes one world per process. All
kinds there usually are: three that share two cores are done sooner than two and then one."""
MAY_WAIT = ("train_step",)
"""Functions in which the host may wait for the device in a step: once, for the loss and the norm."""

EVALUATED_AT_ONCE = 2
"""Micro-batches of an evaluation may take turns in pairs."""


@dataclass(frozen=True)
class MemoryCounts:
    """Bytes on the device, and how much more each further micro-batch adds: 0 where their number does not matter."""

    parameters: int
    """FP32 shards."""
    optimizer: int
    """Adam's moments."""
    gathered: int
    """Parameters gathered for use, in the precision of the computation."""
    gradients: int
    """FP32 gradients before they are reduced."""
    peak: int
    """Of a step with the run's number of micro-batches."""
    after_step: int
    after_evaluation: int
    """Less what a step leaves: what an evaluation leaves besides."""
    peak_per_micro_batch: int
    after_step_per_micro_batch: int

    @property
    def activations(self) -> int:
        """The rest of the peak: activations of micro-batches under way, what operations need for the moment."""
        return self.peak - self.parameters - self.optimizer - self.gathered - self.gradients


@dataclass(frozen=True)
class RankCounts:
    """One kind of rank."""

    kind: str
    rank: int
    layers: int
    counted: tuple[int, int]
    """Micro-batches of the two steps that were run."""
    per_micro_batch: WorkCounts
    per_step: WorkCounts
    """What comes once, the filling and draining of a pipeline included."""
    memory: MemoryCounts
    host_waits: list[HostWait]
    """Of a step; in an evaluation there may be none."""


@dataclass(frozen=True)
class StepCounts:
    """Of all kinds of rank of a run. Counted on the system's own kind of device, and with its precision."""

    num_microbatches: int
    """Of the run's step, for which memory is given."""
    ranks: list[RankCounts]


def step_counts(config: RunConfig) -> StepCounts:
    """Examine one rank of each kind of a run whose model and batch can be dealt out (``RunConfig.require_fit``).

    Raises DeviceFault when the code does what the device would not forgive (fake/host_waits.py).
    """
    importlib.import_module("torch._dynamo")  # fake tensors need it: imported here once, not in each process below
    kinds, ranks = list(kinds_of_ranks(config).items()), list[RankCounts]()
    for first in range(0, len(kinds), AT_ONCE):
        ranks += _examine_apart(config, kinds[first : first + AT_ONCE])
    return StepCounts(config.num_microbatches, ranks)


def _examine_apart(config: RunConfig, kinds: Sequence[tuple[str, int]]) -> list[RankCounts]:
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
                counts, failure = receiver.recv()
            except EOFError:
                raise ChildProcessError(f"the process that examines rank {rank} ({kind}) has died") from None
            if failure is not None:
                raise failure
            found.append(counts)
    finally:
        for process in started:
            process.kill()
            process.join()
    return found


def _send_examined(sender: Connection, config: RunConfig, kind: str, rank: int) -> None:
    """Send the counts and no failure, or the failure: as it is where it is for people, else what it says."""
    try:
        sender.send((examine(config, kind, rank), None))
    except (DeviceFault, InputError) as failure:
        sender.send((None, failure))
    except Exception:
        sender.send((None, RuntimeError(traceback.format_exc())))


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


def layers_of_rank(config: RunConfig, pipeline_rank: int) -> int:
    by_pipeline_stage = layers_of_pipeline_stages(config.benchmark.model.num_layers, config.system.num_pipeline_stages)
    return sum(len(layers) for layers in by_pipeline_stage[pipeline_rank :: config.system.pipeline_parallel])


def counted_micro_batches(config: RunConfig, pipeline_rank: int) -> tuple[int, int]:
    """Two numbers of micro-batches: one with which this rank holds as many as it ever does, and one more. Where the
    pipeline is interleaved, micro-batches go together in groups; of these at least two, for the second is the first
    whose forward passes meet backward passes from their beginning to their end."""
    system = config.system
    ranks, chunks = system.pipeline_parallel, system.pipeline_chunks
    together = ranks if chunks > 1 else 1
    shape = PipelineShape(ranks, pipeline_rank, chunks, apart=system.tensor_parallel > 1)
    groups = math.ceil((most_in_flight(shape) + 1) / chunks / together)
    few = max(1, min(config.num_microbatches, together * (groups if chunks == 1 else max(2, groups))))
    return few, few + together


@dataclass(frozen=True)
class _Stepped:
    """A step of one number of micro-batches."""

    micro_batches: int
    counts: OperatorCounts
    peak: int
    left: int
    waits: list[HostWait]


def examine(config: RunConfig, kind: str, rank: int) -> RankCounts:
    """One rank, in a process that has no world yet."""
    torch.set_num_threads(1)
    gc.disable()  # as in training: it is collected between steps
    gc.freeze()
    system = config.system
    pipeline_rank = rank * system.pipeline_parallel // system.num_devices
    few, more = counted_micro_batches(config, pipeline_rank)
    together = more - few
    with ExitStack() as stack:
        gpu = stack.enter_context(fake_gpu_of(system)) if system.device == "cuda" else None
        world = stack.enter_context(fake_world(system, rank))
        tracker = Tracker(
            {world.mesh[axis].get_group().group_name: axis for axis in world.mesh.mesh_dim_names or ()}, gpu
        )
        fake = fake_tensors() if gpu is None else nullcontext()
        state = empty_state(config, world, starting_progress(config.benchmark, 0), within=_counted(tracker, fake))
        with _counted(tracker, fake):
            sizes = _sizes(state)
            state.optimizer.start_at(config.benchmark.start_iterations)
            _step(state, tracker, max(2, together), strict=False)  # makes what later steps use again
            first = _step(state, tracker, few, strict=True)
            second = _step(state, tracker, more, strict=True)
            evaluated = math.lcm(EVALUATED_AT_ONCE, together)
            tracker.restart()
            with _noted(gpu, strict=True, may_wait=()):
                state.pipeline.evaluate([_batch(state, tracker)] * evaluated, evaluated)
            gc.collect()
            after_evaluation = tracker.live_bytes - second.left
    per_batch, once = split(first.counts, second.counts, few, together)
    return RankCounts(
        kind=kind,
        rank=rank,
        layers=layers_of_rank(config, pipeline_rank),
        counted=(few, more),
        per_micro_batch=per_batch,
        per_step=once,
        memory=_memory(config, sizes, first, second, after_evaluation),
        host_waits=first.waits,
    )


def _memory(
    config: RunConfig, sizes: tuple[int, int], first: _Stepped, second: _Stepped, after_evaluation: int
) -> MemoryCounts:
    shards, gathered = sizes
    beyond, apart = config.num_microbatches - first.micro_batches, second.micro_batches - first.micro_batches
    peak_growth, growth = (second.peak - first.peak) // apart, (second.left - first.left) // apart
    return MemoryCounts(
        parameters=4 * shards,
        optimizer=8 * shards,
        gathered=(2 if config.precision == "bf16" else 4) * gathered,
        gradients=4 * gathered,
        peak=first.peak + beyond * peak_growth,
        after_step=first.left + beyond * growth,
        after_evaluation=after_evaluation,
        peak_per_micro_batch=peak_growth,
        after_step_per_micro_batch=growth,
    )


def _step(state: TrainState, tracker: Tracker, micro_batches: int, *, strict: bool) -> _Stepped:
    """A step of so many micro-batches, counted anew; while ``strict``, the host may wait only in ``MAY_WAIT``."""
    system = state.config.system
    size = micro_batches * system.micro_batch_size * system.data_parallel
    benchmark = dataclasses.replace(state.config.benchmark, global_batch_size=size)
    state.config = dataclasses.replace(state.config, benchmark=benchmark)
    tracker.restart()
    with _noted(tracker.gpu, strict=strict, may_wait=MAY_WAIT) as waits:
        train_step(state, [_batch(state, tracker)] * micro_batches)
    gc.collect()
    return _Stepped(micro_batches, tracker.counts, tracker.peak_bytes, tracker.live_bytes, waits)


def _batch(state: TrainState, tracker: Tracker) -> MicroBatch:
    size = (state.config.system.micro_batch_size, state.config.benchmark.model.seq_length)
    tokens = torch.zeros(size, dtype=torch.int64)
    on_host = MicroBatch(tokens, tokens, torch.ones(size))
    return on_host.pinned() if tracker.gpu is not None else on_host


@contextmanager
def _counted(tracker: Tracker, fake: AbstractContextManager[Any]) -> Iterator[None]:
    """``fake`` is one for the whole examination: tensors of another would be copied, and counted twice."""
    with fake, tracker:
        yield


@contextmanager
def _noted(gpu: FakeGpu | None, *, strict: bool, may_wait: tuple[str, ...]) -> Iterator[list[HostWait]]:
    """The waits of the host within; while ``strict``, one outside the functions ``may_wait`` ends the examination."""
    waits: list[HostWait] = []
    if gpu is None:
        yield waits
        return
    gpu.waits.found, gpu.waits.allowed, gpu.waits.strict = waits, may_wait, strict
    yield waits
    gpu.waits.found, gpu.waits.strict = [], False


def _sizes(state: TrainState) -> tuple[int, int]:
    """Numbers in this process's shards of the parameters, and in these gathered."""
    parameters = state.parameters.values()
    return sum(one.to_local().numel() for one in parameters), sum(map(_gathered_size, parameters))


def _gathered_size(parameter: DTensor) -> int:
    """Numbers of a parameter's part of one tensor-parallel rank."""
    _, tensor_parallel, _ = parameter.device_mesh.shape
    _, over_tensor, _ = parameter.placements
    return parameter.numel() if over_tensor.is_replicate() else parameter.numel() // tensor_parallel
