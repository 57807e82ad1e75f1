"""One process of a replay: the run's steps again, by the code that trains, witnessed as the run was."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.config.run_config import RunConfig
from benchmark.config.runtime_variables import runtime_environment
from benchmark.evidence.link_contents import Content, Machinery, StatePrint
from benchmark.machine.repeatability import use_deterministic_kernels
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, progress_from_json
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.engine.distributed import Environment, World, joined_world, set_environment
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.run_progress import Progress
from benchmark.training.engine.settled_attention import settle_attention
from benchmark.training.engine.train_state import TrainState, empty_state, load_initial
from benchmark.training.guards.witness.run_evidence import machinery_of
from benchmark.training.guards.witness.step_witness import StepWitness
from benchmark.training.inputs import Data, open_data
from benchmark.training.step import evaluate, train_step
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from stage.errors import InputError


@dataclass(frozen=True)
class Stretch:
    """What is to be trained again."""

    config: RunConfig
    start: int
    """Steps of the checkpoint; 0: the initial one."""
    progress: str
    """Of it, as JSON."""
    last: int
    evaluations: Sequence[int]
    """Steps after which the run evaluated."""


@dataclass(frozen=True)
class ReplayedSteps:
    """What came of it."""

    state: StatePrint
    """That it started from."""
    links: Sequence[Content]
    machinery: Machinery
    seconds: Sequence[float]
    """Of each step."""


def replay_steps(stretch: Stretch, environment: Environment) -> ReplayedSteps | None:
    """Load, train and evaluate; None on ranks other than 0. Nothing is written but caches of the sample order.

    Raises InputError for a checkpoint or data that do not belong to the run.
    """
    config = stretch.config
    set_environment(runtime_environment(config.system, deterministic=config.deterministic))
    if config.deterministic:
        use_deterministic_kernels()
    with joined_world(config.system, environment) as world:
        settle_attention(config, world)
        progress = progress_from_json(stretch.progress)
        state = empty_state(config, world, progress)
        _load(state, stretch, world)
        links: list[Content] = []
        data = open_data(config.data, config.benchmark, progress.seed)
        witness = StepWitness(state, world, data.training, links.append, lambda: time.time_ns() // 1_000_000)
        start = witness.state_print()
        seconds = _train(state, world, data, witness, stretch)
        machinery = machinery_of(config, world)
    return ReplayedSteps(start, links, machinery, seconds) if environment.rank == 0 else None


def _load(state: TrainState, stretch: Stretch, world: World) -> None:
    config = stretch.config
    if stretch.start:
        load_checkpoint(state, checkpoint_path(config.run_dir, stretch.start), world)
        return
    if config.data.checkpoint is None or not config.data.checkpoint.is_dir():
        raise InputError(f"{config.data.checkpoint}: no such folder; name the initial checkpoint with --checkpoint")
    load_initial(state, MegatronCheckpoint(config.data.checkpoint))


def _train(state: TrainState, world: World, data: Data, witness: StepWitness, stretch: Stretch) -> list[float]:
    """The steps, and the evaluations in between; seconds of each step."""
    batches = TrainingBatches(witness.windows, stretch.config, rank=world.data_rank, reads=world.reads_tokens)
    progress: Progress = state.progress
    seconds = []
    for _ in range(stretch.start, stretch.last):
        started, first_sample = time.perf_counter(), progress.consumed_samples
        result = train_step(state, batches.at(first_sample))
        progress.steps += 1
        progress.skipped_steps += result.skipped
        witness.stepped(result, step=progress.steps, first_sample=first_sample)
        seconds.append(time.perf_counter() - started)
        if progress.steps in stretch.evaluations:
            found = evaluate(state, world, data.validation)
            witness.evaluated(found.log_perplexity, found.scored_tokens, step=progress.steps)
    witness.finish()
    return seconds
