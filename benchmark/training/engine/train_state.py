"""Everything a run is: what a checkpoint holds is one of these objects, no more and no less."""

from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from benchmark.config.run_config import Benchmark, RunConfig
from benchmark.training.engine.adam import MOMENTS, Adam
from benchmark.training.engine.distributed import World
from benchmark.training.engine.passes import Passes, Pipeline, WholeModel
from benchmark.training.engine.tied_table import TABLE, TiedTable
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from model.parallelize import Spread, parallelize, parameters_by_name
from stage.errors import InputError


@dataclass
class Evaluation:
    """One pass over the validation set."""

    trained_tokens: int
    """Since the initial checkpoint."""
    log_perplexity: float
    """Nats per scored token."""


@dataclass
class Progress:
    """Where a run is. All of it is plain data, stored as JSON in a checkpoint."""

    seed: int
    """Of the data order."""
    start_samples: int
    """Samples consumed by the initial checkpoint, since step 0."""
    global_batch_size: int
    seq_length: int
    steps: int = 0
    """Optimizer steps since the initial checkpoint, skipped ones included."""
    skipped_steps: int = 0
    """Steps whose gradients were not finite: their samples count as consumed, the learning rate stays
    (docs/facts/reference.md e)."""
    skipped_in_a_row: int = 0
    """Of these, the latest: the run gives up when there are too many."""
    restarts: int = 0
    """How often the run was continued from a checkpoint of its own."""
    mlperf_log_bytes: int = 0
    """Length of the MLPerf log when the checkpoint was written; what is beyond it never happened."""
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def iteration(self) -> int:
        """Steps since step 0 in this run's batch size, those of the initial checkpoint included, rounded down."""
        return self.start_samples // self.global_batch_size + self.steps

    @property
    def consumed_samples(self) -> int:
        """Since step 0; the next step reads its samples from here."""
        return self.start_samples + self.steps * self.global_batch_size

    @property
    def scheduled_samples(self) -> int:
        """What the learning rate is computed from: consumed samples without those of skipped steps."""
        return self.consumed_samples - self.skipped_steps * self.global_batch_size

    @property
    def trained_tokens(self) -> int:
        """Since the initial checkpoint."""
        return self.steps * self.global_batch_size * self.seq_length


def starting_progress(benchmark: Benchmark, seed: int) -> Progress:
    return Progress(seed, benchmark.start_samples, benchmark.global_batch_size, benchmark.model.seq_length)


@dataclass
class TrainState:
    """Model, optimizer and progress of a run."""

    config: RunConfig
    passes: Passes
    optimizer: Adam
    progress: Progress
    parameters: dict[str, DTensor]
    """Those of this process's stages, by name; each process has its shards."""
    tied_table: TiedTable

    def tensors(self) -> dict[str, Tensor]:
        """Weights and moments by checkpoint name; writing to them changes the state."""
        tensors: dict[str, Tensor] = {f"model/{name}": value.detach() for name, value in self.parameters.items()}
        for moment, by_name in self.optimizer.moments().items():
            tensors.update({f"{moment}/{name}": value for name, value in by_name.items()})
        return tensors


def empty_state(config: RunConfig, world: World, progress: Progress) -> TrainState:
    """The state with its memory allocated on every device; weights and moments are to be filled from a checkpoint."""
    return allocated_state(config, world, progress, build_stages(config, world), TiedTable(world))


def build_stages(config: RunConfig, world: World) -> list[nn.Module]:
    """This process's part of the model, without memory."""
    system = config.system
    spread = Spread(
        bf16=config.precision == "bf16",
        recompute=system.recompute,
        compile=system.compile,
        keep_unsharded=system.keep_unsharded,
        chunks=system.pipeline_chunks,
    )
    return parallelize(config.benchmark.model, world.mesh, spread)


def allocated_state(
    config: RunConfig, world: World, progress: Progress, stages: list[nn.Module], tied_table: TiedTable
) -> TrainState:
    """Give the stages their memory, and make of them what a step works on."""
    for stage in stages:
        stage.to_empty(device=world.device)
    parameters = parameters_by_name(stages)
    not_counted = (TABLE,) if tied_table.is_second_copy else ()
    adam = Adam(parameters, config.benchmark.optimizer, counted_elsewhere=not_counted)
    kind = Pipeline if config.system.num_stages > 1 else WholeModel
    return TrainState(config, kind(config, world, stages), adam, progress, parameters, tied_table)


def load_initial(state: TrainState, checkpoint: MegatronCheckpoint) -> None:
    """Fill the state from the initial checkpoint: weights, moments, Adam's step counter (docs/facts/reference.md e, f).

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
    moments = state.optimizer.moments()
    checkpoint.load_moments(*(moments[moment] for moment in MOMENTS))
    state.optimizer.start_at(expected)
