"""The state of a run: the content of a checkpoint, with its benchmark and system."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.run_record.run_progress import Progress
from benchmark.training.engine.adam import MOMENTS, Adam
from benchmark.training.engine.distributed import World
from benchmark.training.engine.pipeline import Pipeline
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from foundation.disk_answers import folder_is_there
from foundation.errors import InputError
from model.architectures import architecture_of
from model.initial_weights import draw_initial_weights
from model.passes.waits import pipeline_exchange
from model.sharding import empty_chunks


class TiedTable:
    """A rank's share of the work on a tied word table. The first and the last pipeline stage each have a copy.

    Both copies start from the same values of the checkpoint. After the last micro-batch each rank adds the peer's
    gradient to its own, so that the updates are equal to the bit. In checkpoints and in the gradient's norm the table
    counts once.
    """

    def __init__(self, world: World, name: str | None) -> None:
        """``name``: of the table; None if embedding and output have a table each."""
        self.name, pipeline = name, world.mesh["pipeline"]
        stage, last = pipeline.get_local_rank(), pipeline.size() - 1
        self.group: dist.ProcessGroup | None = pipeline.get_group() if last > 0 and name is not None else None
        """This rank's pipeline, whose first and last rank have the table; None without a pipeline or a tied table."""
        self.is_second_copy = self.group is not None and stage == last
        self.peer_rank: int | None = None
        """The rank with the peer copy; None on ranks without a copy."""
        if self.group is not None and stage in (0, last):
            ranks = dist.get_process_group_ranks(self.group)
            self.peer_rank = ranks[last - stage]

    @property
    def second_copies(self) -> tuple[str, ...]:
        """Parameters of this process whose copy on another one counts: the table, or nothing."""
        return (self.name,) if self.name is not None and self.is_second_copy else ()

    def add_gradients(self, parameters: dict[str, DTensor]) -> None:
        """Make both copies' gradient their sum."""
        if self.peer_rank is None or self.name is None:
            return
        gradient = parameters[self.name].grad
        assert isinstance(gradient, DTensor)
        shard: Tensor = gradient.to_local()
        if shard.numel() == 0:  # neither rank has rows of the table
            return
        peer_shard = torch.empty_like(shard)
        # Between two ranks of a group that exists: a group of its own for each pair would be a split of the world for
        # each of them.
        to, received = (
            dist.P2POp(operation, tensor, self.peer_rank, self.group)
            for operation, tensor in ((dist.isend, shard), (dist.irecv, peer_shard))
        )
        pipeline_exchange(dist.batch_isend_irecv([to, received]))
        shard.add_(peer_shard)


@dataclass
class TrainState:
    """Model, optimizer and progress of a run."""

    benchmark: Benchmark
    system: System
    pipeline: Pipeline
    """Forward and backward passes."""
    optimizer: Adam
    progress: Progress
    parameters: dict[str, DTensor]
    """Parameters that this process has a part of, by name."""
    tied_table: TiedTable

    @property
    def world(self) -> World:
        return self.pipeline.world

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step on each device."""
        return self.system.num_microbatches(self.progress.global_batch_size)

    def weights(self) -> dict[str, Tensor]:
        """By checkpoint name; writing to them changes the state."""
        return {f"model/{name}": value for name, value in self.parameters.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Weights and moments by checkpoint name; writing to them changes the state."""
        tensors = self.weights()
        for moment, by_name in self.optimizer.moments().items():
            tensors.update({f"{moment}/{name}": value for name, value in by_name.items()})
        return tensors


def empty_state(
    benchmark: Benchmark,
    system: System,
    precision: Precision,
    world: World,
    progress: Progress,
    *,
    updates: bool = True,
    within: AbstractContextManager[Any] | None = None,
) -> TrainState:
    """Return the state with its memory allocated, to be filled from a checkpoint. Collective.

    ``updates``: False for a state that is not trained and has no moments. ``within``: the context in which memory is
    allocated; in the dry run's context tensors have no memory.
    """
    sizes = benchmark.model
    tied_table = TiedTable(world, architecture_of(sizes).tied)
    with within or nullcontext():
        chunks = empty_chunks(sizes, world.mesh, system.pipeline_chunks)
        parameters = {name: parameter for chunk in chunks for name, parameter in chunk.items()}
        not_counted = tied_table.second_copies
        adam = Adam(parameters, benchmark.optimizer, counted_elsewhere=not_counted, updates=updates)
        pipeline = Pipeline(sizes, system, precision, world, chunks, benchmark.bf16_layers)
    return TrainState(benchmark, system, pipeline, adam, progress, parameters, tied_table)


def begin_state(state: TrainState, checkpoint: Path | None) -> str:
    """Fill the state that a run begins with: the initial checkpoint's, or, if the benchmark has none, weights drawn
    from the run's seed. Returns the origin in words.

    Raises InputError for a checkpoint that is missing, and as :func:`load_initial_weights`.
    """
    if state.benchmark.start_iterations == 0:
        draw_initial_weights(state.parameters, state.benchmark.model, state.progress.seed)
        state.optimizer.start_at(0)
        return "weights drawn at random"
    if checkpoint is None:
        raise InputError("no sound checkpoint is left; name the initial one with --checkpoint")
    if not folder_is_there(checkpoint):
        raise InputError(f"{checkpoint}: no such folder; name the initial checkpoint with --checkpoint")
    load_initial(state, MegatronCheckpoint(checkpoint))
    return str(checkpoint)


def load_initial(state: TrainState, checkpoint: MegatronCheckpoint) -> None:
    """Fill weights, moments and Adam's step counter from the initial checkpoint (docs/facts/reference.md e, f).

    Raises InputError as :func:`load_initial_weights`.
    """
    load_initial_weights(state, checkpoint)
    moments = state.optimizer.moments()
    checkpoint.load_moments(*(moments[moment] for moment in MOMENTS))
    state.optimizer.start_at(state.benchmark.start_iterations)


def load_initial_weights(state: TrainState, checkpoint: MegatronCheckpoint) -> None:
    """Fill the weights alone from the initial checkpoint.

    Raises InputError when the checkpoint's counter is not the step the benchmark starts at, or when it belongs to
    another model.
    """
    layers = state.benchmark.model.num_layers
    if checkpoint.num_layers() != layers:
        raise InputError(
            f"{checkpoint.folder}: {checkpoint.num_layers()} layers, but the model has {layers}; the checkpoint "
            "belongs to another model"
        )
    step = checkpoint.adam_step()
    expected = state.benchmark.start_iterations
    if step is not None and step != expected:
        raise InputError(
            f"{checkpoint.folder / 'common.pt'}: trained for {step} steps, but the run starts at {expected}; "
            "change --start-iterations"
        )
    checkpoint.load_weights(state.parameters)
