"""A timed run, from its configuration to its summary.

The clock of the benchmark runs from run_start to run_stop. Untimed before it are: joining the processes, loading the
checkpoint, computing the order of the samples, which depends on document lengths alone, and steps on made-up tokens. No
token of the data is read before run_start (the rules: docs/facts/mlperf_review.md 7.1, 7.4). Everything else is timed,
evaluations and checkpoints too.
"""

from benchmark.config.run_config import RunConfig
from benchmark.config.runtime_variables import runtime_environment
from benchmark.machine.run_environment import seconds_since_process_start, use_deterministic_kernels
from benchmark.run_record.attempt_folder import attempt_path
from benchmark.run_record.endings import Ending
from benchmark.run_record.evidence_chain import EVIDENCE
from benchmark.run_record.input_manifests import copy_manifests
from benchmark.run_record.phases import PhaseLog
from benchmark.training.checkpoints.checkpoint_folder import newest_checkpoint
from benchmark.training.debugging.debug_observers import debug_environment, debugging
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.rank_environment import Environment, read_environment, set_environment
from benchmark.training.engine.train_state import empty_state, settle_attention
from benchmark.training.inputs import input_paths, open_data, provenance, require_inputs
from benchmark.training.loop import Run, run_loop
from benchmark.training.observers.evidence import Evidence, recorded_config
from benchmark.training.observers.observer_list import observers_of
from benchmark.training.observers.run_requests import RunRequests
from benchmark.training.restore_state import restore_state
from benchmark.training.run_folder import open_run_folder
from benchmark.training.same_run import input_identities
from benchmark.training.warm_up import warm_up
from foundation.child_processes import end_with_parent
from foundation.errors import CheckFailed
from foundation.outputs.manifest import manifest_path


def train(config: RunConfig, environment: Environment | None = None, phases: PhaseLog | None = None) -> Ending:
    """Run the benchmark on this process's part of the system; logs, checkpoints and summary go to ``run_dir``.

    ``phases`` is told what this process is doing. Raises CheckFailed if the run must not go on with its weights, for
    example if copies of them differ.
    """
    environment, phases = environment or read_environment(), phases or PhaseLog()
    benchmark, system, run_dir = config.benchmark, config.system, config.run_dir
    if environment.world_size > 1:
        end_with_parent()  # no process goes on alone once torchrun or Slurm's step is gone
    if environment.rank == 0:
        require_inputs(config.data, benchmark, begins=newest_checkpoint(run_dir) is None)
    identities = input_identities(config.data) if environment.rank == 0 else None
    attempt = attempt_path(run_dir, environment.attempt)
    set_environment(debug_environment(config.debug, system.device, attempt))
    set_environment(runtime_environment(system, deterministic=config.deterministic))
    if config.deterministic:
        use_deterministic_kernels()
    with (
        RunRequests(config.time_limit_s) as requests,
        open_run_folder(config, environment.rank, environment.launch, identities) as log,
        debugging(config.debug, system.device, run_dir, attempt, environment.rank, phases),
    ):
        for line in config.banner(log.progress.seed):
            log.events.note("message", line)
        phases.enter("join", -1)
        with joined_world(system, environment) as world:
            requests.obey_stops(run_dir if world.rank == 0 else None)
            phases.enter("load", -1)
            hosts, meant = world.hosts(), log.resumed_at
            log.note_attempt(run_dir, environment, hosts)
            log.note_last_incident(run_dir, environment)
            if said := settle_attention(benchmark.model, system, config.precision, world):
                log.events.note("message", said)  # rank 0's
                if world.rank > 0:
                    print(said, flush=True)  # to the process's own log
            state = empty_state(benchmark, system, config.precision, world, log.progress)
            restore_state(state, log, run_dir, config.data.checkpoint, environment.launch, phases)
            if log.resumed_at != meant:  # that one is damaged
                log.note_attempt(run_dir, environment, hosts)
            data = open_data(config.data, benchmark, state.progress.seed)
            if world.rank == 0:
                log.events.note("inputs", provenance(config.data))
                copy_manifests(run_dir, map(manifest_path, input_paths(config.data)))
            if config.deterministic:
                log.events.note("message", "only kernels that give the same bits each time (--deterministic)")
            evidence = None
            if config.logging.evidence:
                recorded = recorded_config(config, state.progress.seed)
                evidence = Evidence(run_dir / EVIDENCE, recorded, identities, environment.attempt, state, log)
            batches = TrainingBatches(data.training, benchmark, system, rank=world.data_rank, reads=world.reads_tokens)
            run = Run(state, batches, data.validation, log.events, phases)
            observers = observers_of(config, state, log, phases, hosts, requests, evidence)
            if warmed_up := warm_up(state, phases):
                log.events.note("message", warmed_up)
            for observer in observers:
                observer.begin()
            log.events.note("ready", seconds=seconds_since_process_start())
            with log.run_clock(eval_tokens=data.validation_tokens, barrier=world.barrier):
                end = run_loop(run, observers)
    if end.ending == "failed":
        raise CheckFailed(end.why)
    return end.ending
