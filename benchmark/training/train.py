"""A timed run, from its configuration to its summary.

The clock of the benchmark runs from run_start to run_stop. Before it, untimed: joining the processes, loading the
checkpoint, the order of the samples, which depends on document lengths alone, and steps on made-up tokens; no token of
the data is read before run_start (the rules: docs/facts/mlperf_review.md 7.1, 7.4). All else is timed, evaluations
and checkpoints too.
"""

import time
from collections.abc import Sequence

from benchmark.config.run_config import RunConfig
from benchmark.config.runtime_variables import runtime_environment
from benchmark.debugging.debug_observers import debug_environment, debugging
from benchmark.launch.attempt_folder import attempt_path
from benchmark.launch.phases import Phase, PhaseLog
from benchmark.launch.stop_note import StopNote, write_stop_note
from benchmark.machine.garbage import GarbageBetweenSteps
from benchmark.machine.repeatability import use_deterministic_kernels
from benchmark.training.audit_replicas import audit_replicas
from benchmark.training.checkpoints.checkpoint_folder import newest_checkpoint
from benchmark.training.checkpoints.run_saves import STOP_PATIENCE_S, RunSaves
from benchmark.training.engine.distributed import Environment, World, joined_world, read_environment, set_environment
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.settled_attention import settle_attention
from benchmark.training.engine.train_state import TrainState
from benchmark.training.guards.rollback_file import (
    agreed_rollbacks,
    plan_rollback,
    take_over,
    write_rollback,
)
from benchmark.training.guards.same_inputs import input_identities
from benchmark.training.guards.skip_diagnosis import describe_state
from benchmark.training.guards.speed_reports import SpeedReports
from benchmark.training.guards.spike_detector import Spike
from benchmark.training.guards.state_soundness import StateSoundness, check_state
from benchmark.training.guards.witness.run_evidence import RunEvidence
from benchmark.training.inputs import Data, open_data, provenance, require_inputs
from benchmark.training.loop import Status, run_loop
from benchmark.training.restore_state import restore_state
from benchmark.training.run_folder import RunFolder, Summary, as_json, open_run_folder, result_path, write_summary
from benchmark.training.run_requests import RunRequests, seconds_since_process_start
from benchmark.training.step import EvaluationResult, StepResult, evaluate, train_step
from benchmark.training.step_flags import StepFlags, StopReason
from benchmark.training.warm_up import warm_up
from stage.child_processes import end_with_parent
from stage.errors import CheckFailed


def train(config: RunConfig, environment: Environment | None = None, phases: PhaseLog | None = None) -> Status:
    """Run the benchmark on this process's part of the system; logs, checkpoints and summary go to ``run_dir``.

    ``phases`` is told what this process is doing. Raises CheckFailed when copies of weights or moments differ.
    """
    environment, phases = environment or read_environment(), phases or PhaseLog()
    if environment.world_size > 1:
        end_with_parent()  # no process goes on alone once torchrun or Slurm's step is gone
    if environment.rank == 0:
        require_inputs(config, checkpoint=newest_checkpoint(config.run_dir) is None)
    identities = input_identities(config) if environment.rank == 0 else None
    attempt = attempt_path(config.run_dir, environment.attempt)
    set_environment({**debug_environment(config, attempt), **runtime_environment(config)})
    if config.deterministic:
        use_deterministic_kernels()
    with (
        RunRequests(config.time_limit_s) as requests,
        open_run_folder(config, environment.rank, environment.launch, identities) as folder,
        debugging(config, attempt, environment.rank, phases),
    ):
        folder.begin_init(config)
        phases.enter("join", -1)
        with joined_world(config.system, environment) as world:
            requests.begin(config.run_dir if world.rank == 0 else None)
            phases.enter("load", -1)
            hosts, meant = world.hosts(), folder.resumed_at
            folder.note_attempt(config, environment, hosts)
            folder.note_last_incident(config, environment)
            if said := settle_attention(config, world):
                folder.events.note("message", said)  # rank 0's
                if world.rank > 0:
                    print(said, flush=True)  # to the process's own log
            state = restore_state(config, world, folder, environment.launch, phases)
            if folder.resumed_at != meant:  # that one is damaged
                folder.note_attempt(config, environment, hosts)
            folder.rollbacks = take_over(state.progress, agreed_rollbacks(config.run_dir))
            data = open_data(config, state.progress.seed)
            if world.rank == 0:
                folder.events.note("inputs", provenance(config))
            if config.deterministic:
                folder.events.note("message", "only kernels that give the same bits each time (--deterministic)")
            run = TimedRun(config, world, folder, state, data, requests, phases, hosts)
            run.begin_evidence()
            warmed_up = warm_up(state, world, phases)
            if warmed_up is not None:
                folder.events.note("message", warmed_up.line())
            folder.events.note("ready", seconds=seconds_since_process_start())
            with folder.run_clock(config, eval_tokens=data.validation_tokens, barrier=world.barrier):
                return _run_and_summarize(run)


class TimedRun:
    """What the loop calls, between run_start and run_stop (``Work`` in loop.py)."""

    def __init__(
        self,
        config: RunConfig,
        world: World,
        folder: RunFolder,
        state: TrainState,
        data: Data,
        requests: RunRequests,
        phases: PhaseLog,
        hosts: Sequence[str],
    ) -> None:
        self.config, self.world, self.folder, self.state = config, world, folder, state
        self.first_loss_s: float | None = None
        """Seconds from the start of the process to its first loss."""
        self._data, self._phases = data, phases
        self.garbage = GarbageBetweenSteps()
        self.differences: list[str] = []
        """Between copies, as the last audit found them."""
        self.soundness = StateSoundness(())
        """Of weights and moments, as the last check found them."""
        self._evidence: RunEvidence | None = None
        training = data.training
        if config.evidence:
            self._evidence = RunEvidence(config, world, state, training, folder.events)
            training = self._evidence.windows
        self._batches = TrainingBatches(training, config, rank=world.data_rank, reads=world.reads_tokens)
        self.requests = requests
        self.stop_by: StopReason | None = None
        """What asked for the end of the run."""
        self.saves = RunSaves(config, world, state, requests, folder.events, self.enter)
        self._speed = SpeedReports(config, state.pipeline, hosts, folder.events)

    def begin_evidence(self) -> None:
        """Before the clock: what the run starts with. Collective."""
        if self._evidence is not None:
            benchmark = as_json(self.config.benchmark)
            inputs = provenance(self.config) if self.world.rank == 0 else {}
            self._evidence.begin(resumed=self.folder.resumed, benchmark=benchmark, inputs=inputs)

    def close(self, status: Status) -> None:
        """The clock stops. The log ends with the evidence's last digest, the evidence with the log's. Collective."""
        if self._evidence is not None:
            self._evidence.stop()
        self.folder.close_run(status)
        if self._evidence is not None:
            self._evidence.close(status, self.folder.mlperf_log)
        self._speed.close()

    def step(self) -> StepResult:
        self.enter("data")
        started = time.perf_counter()
        self._speed.begin(self.state.progress.steps)
        first_sample = self.state.progress.consumed_samples
        batches = self._batches.at(first_sample)
        result = train_step(self.state, batches, self.enter, flags=self.saves.flags())
        if self._evidence is not None:
            self._evidence.stepped(result, step=self.state.progress.steps + 1, first_sample=first_sample)
        self._speed.end(self.state.progress.iteration + 1, disturbed=self.saves.busy)
        self.garbage.step_ended()
        self.saves.stepped(time.perf_counter() - started)
        self.stop_by = result.flags.stop_by
        if self.first_loss_s is None:
            self.first_loss_s = seconds_since_process_start()
        return result

    def evaluate(self) -> EvaluationResult:
        self.enter("evaluation")
        result = evaluate(self.state, self.world, self._data.validation)
        self.garbage.evaluated()
        if self._evidence is not None:
            self._evidence.evaluated(result.log_perplexity, result.scored_tokens)
        return result

    def ready_to_save(self, flags: StepFlags, *, patience_s: float) -> bool:
        return self.saves.ready(flags, patience_s=patience_s)

    def save(self, since: float) -> None:
        self.folder.mark_log()
        if self._evidence is not None:
            self._evidence.checkpoint()
        self.saves.save(since)

    def is_finite(self) -> bool:
        return self.saves.is_finite()

    def audit(self) -> list[str]:
        self.enter("audit")
        self.differences = audit_replicas(self.state, self.world)
        return self.differences

    def check_state(self) -> StateSoundness:
        self.enter("audit")
        self.soundness = check_state(self.state)
        return self.soundness

    def roll_back(self, spike: Spike) -> None:
        self.saves.finish(STOP_PATIENCE_S)
        if self.world.rank == 0:
            run_dir, progress = self.config.run_dir, self.state.progress
            write_rollback(run_dir, plan_rollback(self.config, progress, spike.began))
            write_stop_note(run_dir, StopNote("rollback", progress.steps, saved=False))
        self.world.barrier()  # who leaves first takes the others along

    def memory_bytes(self) -> int:
        return self.world.peak_memory_bytes()

    def enter(self, phase: Phase) -> None:
        self._phases.enter(phase, self.state.progress.steps)


def _run_and_summarize(run: TimedRun) -> Status:
    """From run_start to run_stop. Raises CheckFailed when copies differ."""
    started, progress = time.perf_counter(), run.state.progress
    tokens_before = progress.trained_tokens
    with run.garbage:
        status = run_loop(run.config, progress, run.folder.events, run)
    run.close(status)
    saved = run.saves.finish(STOP_PATIENCE_S)
    if status == "replicas differ":
        more = f" and {len(run.differences) - 1} more" if len(run.differences) > 1 else ""
        raise CheckFailed(f"copies differ between devices, {run.differences[0]}{more}; nothing of it was saved")
    if status == "state damaged":
        raise CheckFailed(f"{describe_state(run.soundness)}; nothing of it was saved")
    if status == "interrupted" and run.world.rank == 0:
        _note_stop(run, saved)
    run.enter("end")
    if run.world.rank == 0 and status not in ("interrupted", "rolled back"):
        run_s = time.perf_counter() - started
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
        _write_summary(run, summary)
    return status


def _write_summary(run: TimedRun, summary: Summary) -> None:
    """Write what says that the run has ended, patiently: without it the run would be done again."""
    patience_s = run.config.system.start_limit_s / 2  # less than the watchdog's
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            return write_summary(run.config.run_dir, summary)
        except OSError as error:
            if time.monotonic() > deadline:
                raise
            if not told:
                text = f"summary.json could not be written: {error.strerror}; tried again for {patience_s:.0f} s"
                run.folder.events.note("message", text)
            told = True
            time.sleep(1)


def _note_stop(run: TimedRun, saved: int | None) -> None:
    """Leave why the run stopped, for its launcher; ``saved``: steps of the last checkpoint that was written."""
    steps, by = run.state.progress.steps, run.stop_by
    assert by is not None
    try:
        write_stop_note(run.config.run_dir, StopNote(by, steps, saved == steps))
    except OSError as error:
        run.folder.events.note("message", f"stopped.json could not be written: {error}")
    if run.config.saves and saved != steps:
        run.folder.events.note("message", f"step {run.state.progress.iteration} is not saved: an older one goes on")
    run.requests.exited()
