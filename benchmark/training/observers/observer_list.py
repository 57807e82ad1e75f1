"""The observers of a run, in the order of their calls."""

import shlex
from collections.abc import Sequence
from functools import partial

from benchmark.config.run_config import RunConfig
from benchmark.run_record.file_names import EVIDENCE_FILE
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import Observer
from benchmark.training.observers.after_checkpoint import AfterCheckpoint
from benchmark.training.observers.checkpoint_saver import CheckpointSaver
from benchmark.training.observers.copy_audit import CopyAudit
from benchmark.training.observers.evidence import Evidence, recorded_config
from benchmark.training.observers.garbage_pauses import GarbagePauses
from benchmark.training.observers.run_requests import RunRequests
from benchmark.training.observers.skipped_steps import SkippedStepGuard, samples_command
from benchmark.training.observers.speed_watch import SpeedWatch
from benchmark.training.observers.spikes import SpikeGuard
from benchmark.training.observers.step_record import StepRecord, TargetEta
from benchmark.training.observers.summary_file import StopNoteFile, SummaryFile
from benchmark.training.run_log import RunLog
from benchmark.training.same_run import InputIdentities


def observers_of(
    config: RunConfig,
    state: TrainState,
    log: RunLog,
    phases: PhaseLog,
    requests: RunRequests,
    *,
    attempt: str,
    hosts: Sequence[str],
    identities: InputIdentities | None,
) -> list[Observer]:
    """Return this process's observers; all processes have the same observers, and rank 0 has some more.

    ``attempt``: its name. ``hosts``: names of the machines by rank. ``identities``: of the run's inputs, on rank 0.
    Collective.
    """
    events, run_dir, options, is_first = log.events, config.run_dir, config.checkpoints, state.world.rank == 0
    samples = partial(samples_command, config.data.train_data_path, state.benchmark, state.progress.seed)
    copies = CopyAudit(config.guards.audit_interval, state, events, phases)
    observers: list[Observer] = [
        SpeedWatch(config.guards.speed_interval, state, hosts, events),
        GarbagePauses(),
        requests,
        SkippedStepGuard(state, events, phases, samples),
        SpikeGuard(state, events, phases, copies.compare, samples),
        copies,
    ]
    if config.logging.evidence:
        precision, deterministic = config.precision, config.deterministic
        recorded = recorded_config(state, config.data, precision=precision, deterministic=deterministic)
        observers.append(Evidence(run_dir / EVIDENCE_FILE, recorded, identities, attempt, state, log))
    observers += [StepRecord(state, config.precision, events), log]
    command = shlex.split(options.after_checkpoint)
    hook = AfterCheckpoint(command, run_dir, state.benchmark, state.system.name, events) if command else None
    if is_first:
        observers.append(TargetEta(state, events))
    if log.mlperf_log is not None:
        observers.append(SummaryFile(run_dir, log.mlperf_log, state, log))
    observers.append(
        CheckpointSaver(
            run_dir, options, state, events, phases, hook.start_for if is_first and hook else None, log.require_lease
        )
    )
    if is_first:
        observers.append(StopNoteFile(run_dir, state, log, saves=options.saves))
        if hook is not None:
            observers.append(hook)
    return observers
