"""The observers of a run, in the order in which they are told."""

import shlex
from collections.abc import Sequence
from functools import partial

from benchmark.config.run_config import RunConfig
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import Observer
from benchmark.training.observers.after_checkpoint import AfterCheckpoint
from benchmark.training.observers.copy_audit import CopyAudit
from benchmark.training.observers.evidence import Evidence
from benchmark.training.observers.garbage_pauses import GarbagePauses
from benchmark.training.observers.run_requests import RunRequests
from benchmark.training.observers.saves import Saves
from benchmark.training.observers.skipped_steps import SkipGuard, samples_command
from benchmark.training.observers.speed_watch import SpeedWatch
from benchmark.training.observers.spikes import SpikeGuard
from benchmark.training.observers.step_record import StepRecord, TargetEta
from benchmark.training.observers.summary_file import SummaryFile
from benchmark.training.run_folder import result_path
from benchmark.training.run_log import RunLog


def observers_of(
    config: RunConfig,
    state: TrainState,
    log: RunLog,
    phases: PhaseLog,
    hosts: Sequence[str],
    requests: RunRequests,
    evidence: Evidence | None,
) -> list[Observer]:
    """Return this process's observers; all processes have the same ones, except those that only rank 0 has.

    ``hosts``: names of the machines by rank. Collective.
    """
    events, run_dir, saves = log.events, config.run_dir, config.checkpoints
    samples = partial(samples_command, config.data.train_data_path, state.benchmark, state.progress.seed)
    copies = CopyAudit(config.guards.audit_interval, state, events, phases)
    told: list[Observer] = [
        SpeedWatch(config.guards.speed_interval, state, hosts, events),
        GarbagePauses(),
        requests,
        SkipGuard(state, events, phases, samples),
        SpikeGuard(state, events, phases, copies.compare, samples),
        copies,
        *([evidence] if evidence is not None else []),
        StepRecord(state, events),
        log,
    ]
    if state.world.rank > 0:
        return [*told, Saves(run_dir, saves, state, events, phases, told)]
    told.append(TargetEta(state, events))
    command = shlex.split(saves.after_checkpoint)
    hook = AfterCheckpoint(command, run_dir, state.benchmark, state.system.name, events) if command else None
    result = result_path(run_dir, config.result_number)
    return [
        *told,
        Saves(run_dir, saves, state, events, phases, told, None if hook is None else hook.written),
        SummaryFile(run_dir, result, state, events, phases, saves=saves.saves),
        *([hook] if hook is not None else []),
    ]
