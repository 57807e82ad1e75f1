"""A timed run, from its configuration to its summary.

The clock of the benchmark runs from run_start to run_stop. Before it, untimed: joining the processes, loading the
checkpoint, and the order of the samples, which depends on document lengths alone; no token is read before run_start
(the rules: docs/facts/mlperf_review.md 7.1, 7.4). All else is timed, evaluations and checkpoints too.
"""

import time

from benchmark.config.run_config import RunConfig
from benchmark.supervision.phases import Phase, PhaseLog
from benchmark.training.audit_replicas import audit_replicas
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, newest_checkpoint, read_progress
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer, Written
from benchmark.training.engine.distributed import Environment, World, joined_world, read_environment
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.train_state import TrainState, empty_state, load_initial
from benchmark.training.inputs import Data, open_data, provenance, require_inputs
from benchmark.training.loop import Status, run_loop
from benchmark.training.run_folder import RunFolder, Summary, open_run_folder, result_path, write_summary
from benchmark.training.step import EvaluationResult, StepResult, evaluate, train_step
from benchmark.training.stop_request import StopRequest, seconds_since_process_start
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from stage.child_processes import end_with_parent
from stage.errors import CheckFailed


def train(config: RunConfig, environment: Environment | None = None, phases: PhaseLog | None = None) -> Status:
    """Run the benchmark on this process's part of the system; logs, checkpoints and summary go to ``run_dir``.

    ``phases`` is told what this process is doing. Raises CheckFailed when copies of weights or moments differ, and when
    an interrupted run could not be saved.
    """
    environment, phases = environment or read_environment(), phases or PhaseLog()
    if environment.world_size > 1:
        end_with_parent()  # no process goes on alone once torchrun or Slurm's step is gone
    if environment.rank == 0:
        require_inputs(config, checkpoint=newest_checkpoint(config.run_dir) is None)
    with open_run_folder(config, environment.rank) as folder:
        folder.begin_init(config)
        phases.enter("join", -1)
        with joined_world(config.system, environment) as world, StopRequest(config.time_limit_s) as stop:
            phases.enter("load", -1)
            folder.note_attempt(config, environment, world.hosts())
            state = _restore(config, world, folder)
            data = open_data(config, state.progress.seed)
            if world.rank == 0:
                folder.events.note("inputs", provenance(config))
            folder.events.note("ready", seconds=seconds_since_process_start())
            with folder.run_clock(config, eval_tokens=data.validation_tokens, barrier=world.barrier):
                status = _run_and_summarize(TimedRun(config, world, folder, state, data, stop, phases))
            phases.enter("end", state.progress.steps)
            return status


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


class TimedRun:
    """What the loop calls, between run_start and run_stop (``Work`` in loop.py)."""

    def __init__(
        self,
        config: RunConfig,
        world: World,
        folder: RunFolder,
        state: TrainState,
        data: Data,
        stop: StopRequest,
        phases: PhaseLog,
    ) -> None:
        self.started = time.perf_counter()
        self.config, self.world, self.folder, self.state = config, world, folder, state
        self.first_loss_s: float | None = None
        """Seconds from the start of the process to its first loss."""
        self._data, self._stop, self._phases = data, stop, phases
        self.differences: list[str] = []
        """Between copies, as the last audit found them."""
        self._batches = TrainingBatches(data.training, config, rank=world.data_rank)
        self._checkpointer = Checkpointer(state, world.device)

    def step(self) -> StepResult:
        self._enter("data")
        self._report(self._checkpointer.poll())
        batches = self._batches.at(self.state.progress.consumed_samples)
        result = train_step(self.state, batches, self._enter, stop_requested=self._stop.requested())
        if self.first_loss_s is None:
            self.first_loss_s = seconds_since_process_start()
        return result

    def evaluate(self) -> EvaluationResult:
        self._enter("evaluation")
        return evaluate(self.state, self.world, self._data.validation)

    def save(self) -> None:
        self._enter("save")
        self.wait_for_checkpoint()
        self.folder.mark_log()
        pause_s = self._checkpointer.save()
        self.folder.events.note("checkpoint", steps=self.state.progress.steps, seconds=pause_s)

    def audit(self) -> list[str]:
        self._enter("audit")
        self.differences = audit_replicas(self.state, self.world)
        return self.differences

    def memory_bytes(self) -> int:
        return self.world.peak_memory_bytes()

    def wait_for_checkpoint(self) -> Written | None:
        """Wait for the checkpoint being written; what became of it, None when there is none."""
        written = self._checkpointer.wait()
        self._report(written)
        return written

    def _enter(self, phase: Phase) -> None:
        self._phases.enter(phase, self.state.progress.steps)

    def _report(self, written: Written | None) -> None:
        """Log a checkpoint that is finished. One that failed does not stop the run: the next may not."""
        if written is None:
            return
        if written.failure:
            text = f"the checkpoint after {written.steps} steps could not be written: {written.failure}"
            self.folder.events.note("message", text)
        else:
            self.folder.events.note(
                "checkpoint_written", steps=written.steps, seconds=written.seconds, bytes=written.bytes
            )


def _run_and_summarize(run: TimedRun) -> Status:
    """From run_start to run_stop. Raises CheckFailed when copies differ, or an interrupted run could not be saved."""
    progress = run.state.progress
    tokens_before = progress.trained_tokens
    status = run_loop(run.config, progress, run.folder.events, run)
    run.folder.close_run(status)
    last = run.wait_for_checkpoint()
    if status == "replicas differ":
        more = f" and {len(run.differences) - 1} more" if len(run.differences) > 1 else ""
        raise CheckFailed(f"copies differ between devices, {run.differences[0]}{more}; nothing of it was saved")
    if status == "interrupted" and last is not None and last.failure:
        raise CheckFailed(f"the interrupted run could not be saved: {last.failure}")
    if run.world.rank == 0 and status != "interrupted":
        run_s = time.perf_counter() - run.started
        summary = Summary(
            status=status,
            seed=progress.seed,
            trained_tokens=progress.trained_tokens,
            trained_samples=progress.steps * progress.global_batch_size,
            evaluations=progress.evaluations,
            run_s=run_s,
            tokens_per_s=(progress.trained_tokens - tokens_before) / run_s,
            first_loss_s=run.first_loss_s,
            restarts=progress.restarts,
            result=str(result_path(run.config)),
        )
        write_summary(run.config.run_dir, summary)
    return status
