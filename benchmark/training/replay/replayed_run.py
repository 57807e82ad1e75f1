"""The processes of a replay: they do the run's steps again with the code that trains, and record them as the run
did."""

import os
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.run_record.endings import StopReason
from benchmark.run_record.evidence_chain import Chain, read_chain
from benchmark.run_record.file_names import EVIDENCE_FILE
from benchmark.run_record.run_progress import Progress
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.engine.distributed import end_process
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.rank_environment import Environment, read_environment
from benchmark.training.engine.train_state import TrainState, begin_state, empty_state
from benchmark.training.inputs import Datasets, open_data
from benchmark.training.machine.forked_ranks import run_ranks
from benchmark.training.observer import FinishedStep
from benchmark.training.observers.evidence import Evidence, recorded_config
from benchmark.training.run_log import RunLog
from benchmark.training.step import evaluate, train_step
from benchmark.training.training_world import training_world
from foundation.errors import InputError
from model.decoder_sizes import DecoderSizes
from model.flops import num_parameters

BYTES_PER_PARAMETER = 16
"""Bytes of FP32 weights, gradients and two moments."""
ATTEMPT = "replay"


@dataclass(frozen=True)
class Stretch:
    """The stretch of a run to train again."""

    config: RunConfig
    """Configuration whose run folder is the replay's own."""
    start: Path | None
    """The run's checkpoint to start from; None for the initial one."""
    progress: Progress
    """The run's progress at that checkpoint."""
    last: int
    """Steps after which the stretch ends."""
    evaluations: Collection[int]
    """Steps after which the run evaluated."""


def replay_on_ranks(stretch: Stretch, environment: Environment, folder: Path) -> Chain | None:
    """Train the stretch and return the chain that it writes into ``folder``; None on ranks other than 0.

    The processes are the launcher's, or else new ones on this machine. Raises InputError if the devices do
    not suffice or a process fails.
    """
    stretch = replace(stretch, config=replace(stretch.config, run_dir=folder))
    if environment.world_size > 1:
        _train(stretch, environment)
        return read_chain(folder / EVIDENCE_FILE) if environment.rank == 0 else None
    require_room(stretch.config.benchmark.model, stretch.config.system)
    log = folder / "log.txt"
    status = run_ranks(_rank, [stretch], processes=stretch.config.system.num_devices, environment={}, log=log)
    if status:
        output = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        errors = [line.removeprefix("error: ") for line in output if line.startswith("error: ")]
        last_line = output[-1] if output else "it said nothing"
        raise InputError(errors[0] if errors else f"a process of the replay ended with status {status}: {last_line}")
    return read_chain(folder / EVIDENCE_FILE)


def require_room(model: DecoderSizes, system: System) -> None:
    """Raise InputError if this machine does not have the devices or the memory."""
    parameters = num_parameters(model)
    mend = "start replay on each device, as train is started, or choose another layout with --system"
    on_gpus = system.device == "cuda"
    if system.nodes > 1 or (on_gpus and torch.cuda.device_count() < system.devices_per_node):
        gpus = f"; PyTorch sees {torch.cuda.device_count()} GPUs here" if on_gpus else ""
        raise InputError(f"the layout takes {system.nodes} x {system.devices_per_node} devices{gpus}: {mend}")
    needed_bytes = BYTES_PER_PARAMETER * parameters * system.replicas
    available_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if on_gpus:
        available_bytes = sum(
            torch.cuda.get_device_properties(index).total_memory for index in range(system.devices_per_node)
        )
    if needed_bytes > available_bytes:
        raise InputError(
            f"{parameters / 1e9:.1f}e9 parameters take {needed_bytes / 1e9:,.0f} GB; this machine has "
            f"{available_bytes / 1e9:,.0f}: {mend}"
        )


def _rank(stretch: Stretch) -> None:
    """Run one process of several; report bad input in one line."""
    status = 0
    try:
        _train(stretch, read_environment())
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        status = 2
    end_process(status)


def _train(stretch: Stretch, environment: Environment) -> None:
    """Load, train and evaluate. Raises InputError for a checkpoint or data that do not belong to the run."""
    config, benchmark, system = stretch.config, stretch.config.benchmark, stretch.config.system
    attention = benchmark.model, config.precision
    with training_world(system, environment, deterministic=config.deterministic, attention=attention) as world:
        progress = stretch.progress
        state = empty_state(benchmark, system, config.precision, world, progress)
        if stretch.start is not None:
            load_checkpoint(state, stretch.start)
        else:
            begin_state(state, config.data.checkpoint)
        data = open_data(config.data, benchmark, progress.seed)
        log = RunLog(benchmark, system, config.precision, config.logging)
        precision, deterministic = config.precision, config.deterministic
        recorded = recorded_config(state, config.data, precision=precision, deterministic=deterministic)
        evidence = Evidence(config.run_dir / EVIDENCE_FILE, recorded, None, ATTEMPT, state, log)
        evidence.begin()
        _steps(state, data, evidence, stretch)
        evidence.end(StopReason("interrupted", "end of the stretch"))


def _steps(state: TrainState, datasets: Datasets, evidence: Evidence, stretch: Stretch) -> None:
    rank, reads = state.world.data_rank, state.world.reads_tokens
    batches = TrainingBatches(datasets.training, state.benchmark, state.system, rank=rank, reads=reads)
    progress = state.progress
    while progress.steps < stretch.last:
        began, first_sample = time.perf_counter(), progress.consumed_samples
        result = train_step(state, batches.at(first_sample))
        progress.count_step(skipped=result.skipped)
        evidence.step_done(FinishedStep(result, first_sample, began))
        if progress.steps in stretch.evaluations:
            evidence.evaluated(evaluate(state, datasets.validation))
