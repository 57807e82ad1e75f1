"""Everything a run is: what a checkpoint holds is one of these objects, no more and no less."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.adam import MOMENTS, Adam
from benchmark.training.engine.distributed import World
from benchmark.training.engine.forward_backward import ForwardBackward, ShardedModel
from benchmark.training.engine.pipeline import Pipeline
from benchmark.training.engine.run_progress import Progress
from benchmark.training.engine.tied_table import TABLE, TiedTable
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from model.parallelize import Spread, parallelize, parameters_by_name
from stage.errors import InputError


@dataclass
class TrainState:
    """Model, optimizer and progress of a run."""

    config: RunConfig
    model_parts: list[nn.Module]
    """This process's: one for each of its chunks of a pipeline, or the whole model."""
    forward_backward: ForwardBackward
    optimizer: Adam
    progress: Progress
    parameters: dict[str, DTensor]
    """Those of the model parts, by name; each process has its shards."""
    tied_table: TiedTable

    def weights(self) -> dict[str, Tensor]:
        """By checkpoint name; writing to them changes the state."""
        return {f"model/{name}": value.detach() for name, value in self.parameters.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Weights and moments by checkpoint name; writing to them changes the state."""
        tensors = self.weights()
        for moment, by_name in self.optimizer.moments().items():
            tensors.update({f"{moment}/{name}": value for name, value in by_name.items()})
        return tensors


def empty_state(
    config: RunConfig,
    world: World,
    progress: Progress,
    *,
    updates: bool = True,
    within: AbstractContextManager[Any] | None = None,
) -> TrainState:
    """The state with its memory allocated on every device; weights and moments are to be filled from a checkpoint.

    ``updates``: whether it will be trained; else it has no moments. ``within``: memory is allocated in this context;
    the dry run gives one in which tensors have none. Collective.
    """
    system = config.system
    spread = Spread(
        bf16=config.precision == "bf16",
        recompute=system.recompute,
        compile=system.compile,
        by_hand=system.keeps_whole,
        chunks=system.pipeline_chunks,
    )
    model_parts = parallelize(config.benchmark.model, world.mesh, spread)
    tied_table = TiedTable(world)
    with within or nullcontext():
        for part in model_parts:
            part.to_empty(device=world.device)
        parameters = parameters_by_name(model_parts)
        not_counted = (TABLE,) if tied_table.is_second_copy else ()
        adam = Adam(parameters, config.benchmark.optimizer, counted_elsewhere=not_counted, updates=updates)
        kind = Pipeline if system.keeps_whole else ShardedModel
        passes = kind(config, world, model_parts)
    return TrainState(config, model_parts, passes, adam, progress, parameters, tied_table)


def load_initial(state: TrainState, checkpoint: MegatronCheckpoint) -> None:
    """Fill the state from the initial checkpoint: weights, moments, Adam's step counter (docs/facts/reference.md e, f).

    Raises InputError as :func:`load_initial_weights`.
    """
    load_initial_weights(state, checkpoint)
    moments = state.optimizer.moments()
    checkpoint.load_moments(*(moments[moment] for moment in MOMENTS))
    state.optimizer.start_at(state.config.benchmark.start_iterations)


def load_initial_weights(state: TrainState, checkpoint: MegatronCheckpoint) -> None:
    """Fill the weights alone from the initial checkpoint.

    Raises InputError when the checkpoint's counter is not the step the benchmark starts at, or when it belongs to
    another model.
    """
    layers = state.config.benchmark.model.num_layers
    if checkpoint.num_layers() != layers:
        raise InputError(
            f"{checkpoint.folder}: {checkpoint.num_layers()} layers, but the model has {layers}; the checkpoint "
            "belongs to another model"
        )
    step = checkpoint.adam_step()
    expected = state.config.benchmark.start_iterations
    if step is not None and step != expected:
        raise InputError(
            f"{checkpoint.folder / 'common.pt'}: trained for {step} steps, but the run starts at {expected}; "
            "change --start-iterations"
        )
    checkpoint.load_weights(state.parameters)
