"""A timed run, from its configuration to its summary.

The clock of the benchmark runs from run_start to run_stop. Untimed before it are: joining the processes, loading the
checkpoint, computing the order of the samples, which depends on document lengths alone, and steps on made-up tokens. No
token of the data is read before run_start (the rules: docs/facts/mlperf_review.md 7.1, 7.4). Everything else is timed,
evaluations and checkpoints too.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.run_config import RunConfig
from benchmark.config.run_sections import DataOptions
from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.endings import Ending
from benchmark.run_record.file_names import attempt_path
from benchmark.run_record.input_manifests import copy_manifests
from benchmark.run_record.phases import PhaseLog
from benchmark.run_record.small_files import wait_for, warn
from benchmark.training.debugging.debug_observers import debug_environment, debugging
from benchmark.training.engine.distributed import World
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.rank_environment import Environment, read_environment
from benchmark.training.engine.train_state import TrainState, empty_state
from benchmark.training.inputs import describe_validation, input_paths, open_data, provenance, require_inputs
from benchmark.training.loop import TrainingRun, run_loop
from benchmark.training.machine.run_environment import run_environment, seconds_since_process_start
from benchmark.training.observers.observer_list import observers_of
from benchmark.training.observers.run_requests import RunRequests
from benchmark.training.resume_point import agree_on_resume_point, fulfil_request, restore_state
from benchmark.training.run_folder import open_run_folder
from benchmark.training.run_log import RunLog
from benchmark.training.same_run import input_identities
from benchmark.training.training_world import training_world
from benchmark.training.warm_up import warm_up
from foundation.child_processes import end_with_parent
from foundation.errors import CheckFailed
from foundation.outputs.manifest import manifest_path


def train(config: RunConfig, environment: Environment | None = None, phases: PhaseLog | None = None) -> Ending:
    """Run the benchmark on this process's part of the system; logs, checkpoints and summary go to ``run_dir``.

    ``phases`` records the phases of this process. Raises CheckFailed if the run must not go on with its weights, for
    example if copies of them differ.
    """
    environment, phases = environment or read_environment(), phases or PhaseLog()
    benchmark, system, run_dir, data = config.benchmark, config.system, config.run_dir, config.data
    if environment.world_size > 1:
        end_with_parent()  # no process goes on alone once torchrun or Slurm's step is gone
    if environment.rank == 0:
        require_inputs(data, benchmark, begins=newest_checkpoint(run_dir) is None)
    identities = input_identities(data) if environment.rank == 0 else None
    attempt = attempt_path(run_dir, environment.attempt)
    with (
        RunRequests(config.time_limit_s) as requests,
        open_run_folder(config, environment.rank, environment, identities) as log,
    ):
        if log.resume_point is not None:
            for line in config.banner(log.resume_point.progress.seed):
                log.events.note("message", line)
        with (
            training_world(
                system,
                environment,
                deterministic=config.deterministic,
                attention=(benchmark.model, config.precision),
                variables=debug_environment(config.debug, system.device, attempt),
                phases=phases,
                note=log.note_on_this_rank,
            ) as world,
            debugging(config.debug, system.device, run_dir, attempt, environment.rank, phases),
        ):
            requests.obey_stops(run_dir if world.rank == 0 else None)
            hosts = world.hosts()
            state = _resumed_state(config, environment, world, log, phases, hosts)
            datasets = open_data(data, benchmark, state.progress.seed)
            if world.rank == 0:
                _note_inputs(log, run_dir, data, benchmark, system.start_limit_s / 2)
            batches = TrainingBatches(
                datasets.training, benchmark, system, rank=world.data_rank, reads=world.reads_tokens
            )
            run = TrainingRun(state, batches, datasets.validation, log.events, phases)
            observers = observers_of(
                config, state, log, phases, requests, attempt=environment.attempt, hosts=hosts, identities=identities
            )
            if config.deterministic:
                log.events.note("message", "only kernels that give the same bits each time (--deterministic)")
            if report := warm_up(state, phases):
                log.events.note("message", report)
            for observer in observers:
                observer.begin()
            log.events.note("ready", seconds=seconds_since_process_start())
            with log.run_clock(eval_tokens=datasets.validation_tokens, barrier=world.barrier):
                end = run_loop(run, observers)
    if end.ending == "failed":
        raise CheckFailed(end.why)
    return end.ending


def _resumed_state(
    config: RunConfig, environment: Environment, world: World, log: RunLog, phases: PhaseLog, hosts: Sequence[str]
) -> TrainState:
    """Return the state at the resume point that all processes agree on, and note the attempt in the log. Collective.

    ``hosts``: names of the machines by rank.
    """
    run_dir, system = config.run_dir, config.system
    phases.enter("load", -1)
    log.note_attempt(run_dir, environment, hosts)
    log.note_last_incident(run_dir, environment)
    log.events.note("environment", run_environment(system.device))
    patience_s = system.start_limit_s / 2
    point = agree_on_resume_point(log.resume_point, run_dir, world, log.mlperf_log, phases, patience_s)
    if point is not log.resume_point:
        log.resume(point)
        log.note_attempt(run_dir, environment, hosts)
    state = empty_state(config.benchmark, system, config.precision, world, point.progress)
    origin = restore_state(state, run_dir, config.data.checkpoint, point)
    if world.rank == 0:
        fulfil_request(run_dir, point, environment.launch)
    log.events.note("message", origin)
    return state


def _note_inputs(log: RunLog, run_dir: Path, data: DataOptions, benchmark: Benchmark, patience_s: float) -> None:
    """Note the contents and the windows that the run reads, on rank 0. ``patience_s``: seconds that the disk may give
    errors."""
    log.events.note("inputs", provenance(data))
    wait_for(lambda: copy_manifests(run_dir, map(manifest_path, input_paths(data))), patience_s, warn)
    if windows := describe_validation(benchmark):
        log.events.note("message", windows)
