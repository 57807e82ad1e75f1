"""A timed run, from its configuration to its summary.

The clock of the benchmark runs from run_start to run_stop. Before it, untimed: joining the processes, loading the
checkpoint, and the order of the samples, which depends on document lengths alone; no token is read before run_start
(the rules: docs/facts/mlperf_review.md 7.1, 7.4). All else is timed, evaluations and checkpoints too.
"""

import os
import signal
import time
from pathlib import Path

from benchmark.config.run_config import RunConfig
from benchmark.events.event_log import EventLog
from benchmark.training.audit_replicas import audit_replicas
from benchmark.training.checkpoints.run_checkpoint import (
    Checkpointer,
    Written,
    checkpoint_path,
    load_checkpoint,
    newest_checkpoint,
    read_progress,
)
from benchmark.training.engine.distributed import World, joined_world, read_environment
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.train_state import TrainState, empty_state, load_initial
from benchmark.training.inputs import Data, open_data, provenance, require_inputs
from benchmark.training.loop import Status, Work, run_loop
from benchmark.training.run_folder import RunFolder, Summary, open_run_folder, write_summary
from benchmark.training.step import StepResult, evaluate, train_step
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from stage.child_processes import end_with_parent
from stage.errors import CheckFailed

EXIT_STATUS: dict[Status, int] = {
    "success": 0,
    "completed": 0,
    "target not reached": 1,
    "diverged": 1,
    "replicas differ": 1,
    "interrupted": 75,  # EX_TEMPFAIL: the same command continues the run
}


def train(config: RunConfig) -> Status:
    """Run the benchmark on this process's part of the system; logs, checkpoints and summary go to ``run_dir``."""
    environment = read_environment()
    if environment.world_size > 1:
        end_with_parent()  # no process goes on alone once torchrun or Slurm's step is gone
    config.require_fit()
    if environment.rank == 0:
        require_inputs(config, checkpoint=newest_checkpoint(config.run_dir) is None)
    with open_run_folder(config, environment.rank) as folder:
        folder.begin_init(config)
        with joined_world(config.system, environment) as world, _StopRequest(config.time_limit_s) as stop:
            state = _restore(config, world, folder)
            data = open_data(config, state.progress.seed)
            if world.rank == 0:
                folder.events.note("inputs", provenance(config))
            with folder.run_clock(config, eval_tokens=data.validation_tokens, barrier=world.barrier):
                return _timed(config, world, folder, state, data, stop)


def _restore(config: RunConfig, world: World, folder: RunFolder) -> TrainState:
    """The state this run starts or continues with, the same on all processes."""
    resumed_at = world.from_rank_0(folder.progress.steps if folder.resumed else -1)
    if resumed_at < 0:
        assert config.checkpoint is not None
        folder.progress.seed = world.from_rank_0(folder.progress.seed)
        state = empty_state(config, world, folder.progress)
        load_initial(state, MegatronCheckpoint(config.checkpoint))
        folder.events.note("message", f"starting from {config.checkpoint}, seed {state.progress.seed}")
        return state
    path = checkpoint_path(config.run_dir, resumed_at)
    if world.rank != 0:
        folder.progress, folder.resumed = read_progress(path), True
    state = empty_state(config, world, folder.progress)
    load_checkpoint(state, path, world)
    folder.events.note("message", f"continuing from {path}, seed {state.progress.seed}")
    return state


def _timed(
    config: RunConfig, world: World, folder: RunFolder, state: TrainState, data: Data, stop: "_StopRequest"
) -> Status:
    """From run_start to run_stop."""
    progress, events = state.progress, folder.events
    started, tokens_before = time.perf_counter(), progress.trained_tokens
    batches = TrainingBatches(data.training, config, rank=world.data_rank)
    first_loss_s: float | None = None

    def step() -> StepResult:
        nonlocal first_loss_s
        _report(events, checkpoints.poll())
        result = train_step(state, batches.at(progress.consumed_samples), stop_requested=stop.requested())
        if first_loss_s is None:
            first_loss_s = seconds_since_process_start()
        return result

    checkpoints = Checkpointer(state, world.device)

    def save() -> None:
        _report(events, checkpoints.wait())
        folder.mark_log()
        events.note("checkpoint", steps=progress.steps, seconds=checkpoints.save())

    work = Work(
        step,
        lambda: evaluate(state, world, data.validation),
        save,
        lambda: audit_replicas(state, world),
        world.peak_memory_bytes,
    )
    status = run_loop(config, progress, events, work)
    folder.close_run(status)
    last = checkpoints.wait()
    _report(events, last)
    if status == "interrupted" and last is not None and last.failure:
        raise CheckFailed(f"the interrupted run could not be saved: {last.failure}")
    run_s = time.perf_counter() - started
    if world.rank == 0 and status != "interrupted":
        tokens_per_s = (progress.trained_tokens - tokens_before) / run_s
        write_summary(config, Summary.of(config, progress, status, run_s, tokens_per_s, first_loss_s))
    return status


def _report(events: EventLog, written: Written | None) -> None:
    """A checkpoint that the background has finished with. One that failed does not stop the run: the next may not."""
    if written is None:
        return
    if written.failure:
        events.note("message", f"the checkpoint after {written.steps} steps could not be written: {written.failure}")
    else:
        events.note("checkpoint_written", steps=written.steps, seconds=written.seconds, bytes=written.bytes)


class _StopRequest:
    """Whether this process was asked to stop: by SIGTERM, as Slurm sends it, or by the time limit."""

    def __init__(self, time_limit_s: float | None) -> None:
        self._asked = False
        self._time_limit_s = time_limit_s

    def requested(self) -> bool:
        late = self._time_limit_s is not None and seconds_since_process_start() > self._time_limit_s
        return self._asked or late

    def __enter__(self) -> "_StopRequest":
        self._before = signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_asked", True))
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)


def seconds_since_process_start() -> float:
    """Seconds since the operating system started this process, imports included (Linux)."""
    started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
