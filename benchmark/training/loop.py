"""The timed loop: step, log, evaluate, stop."""

import functools
import time
from typing import Literal, Protocol

from benchmark.config.run_config import RunConfig
from benchmark.events.event_log import EventLog
from benchmark.training.checkpoints.run_saves import STEP_PATIENCE_S, STOP_PATIENCE_S
from benchmark.training.engine.run_progress import Evaluation, Progress
from benchmark.training.guards.loss_guards import Ending, GuardedRun, LossGuards
from benchmark.training.step import EvaluationResult, StepResult
from benchmark.training.step_flags import StepFlags
from model.flops import train_flops_per_token

Status = Literal["success", "completed", "target not reached", "interrupted"] | Ending


class Work(GuardedRun, Protocol):
    """What the loop calls. All are collective: every process calls them at the same step."""

    def step(self) -> StepResult:
        """One optimizer step at the current progress."""
        ...

    def evaluate(self) -> EvaluationResult: ...

    def ready_to_save(self, flags: StepFlags, *, patience_s: float) -> bool:
        """Whether a checkpoint can be begun; waits so long at most for the one being written."""
        ...

    def save(self, since: float) -> None:
        """Begin to write a checkpoint. ``since``: when training paused for it, by time.perf_counter."""
        ...

    def is_finite(self) -> bool:
        """Whether all weights and moments are."""
        ...

    def audit(self) -> list[str]:
        """What differs between copies that must be the same."""
        ...

    def memory_bytes(self) -> int:
        """Most memory this process's device has held."""
        ...


def run_loop(config: RunConfig, progress: Progress, events: EventLog, work: Work) -> Status:
    """Train until the target, the end of training or a request to stop. Counts are advanced in ``progress``.

    Evaluations come every ``eval_interval`` steps since the start, and at the very end; the target is met at or below
    it, as the rules' checker has it (docs/facts/reference.md j.31).
    """
    benchmark = config.benchmark
    block: list[float] = []  # seconds of each step since the last evaluation
    owed = False  # a checkpoint was due after a certain step, and could not be begun yet
    guards = LossGuards(config, progress, events, work, lambda: _replicas_differ(progress, events, work))
    if progress.steps == 0:
        _start_block(config, progress, events)
    while not progress.finished(benchmark):
        started = time.perf_counter()
        result = work.step()
        progress.steps += 1
        progress.skipped_steps += result.skipped
        progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if result.skipped else 0
        block.append(time.perf_counter() - started)
        _log_step(config, progress, events, result, block[-1], work.memory_bytes())

        finished = progress.finished(benchmark)
        if progress.steps % benchmark.eval_interval == 0 or finished:
            mean_step_s = sum(block) / len(block)
            stats = {"train_step_timing": mean_step_s, "throughput": config.tokens_per_step / mean_step_s}
            stats["reduced_train_loss"] = result.loss
            events.point("tracked_stats", stats, step=progress.trained_tokens)
            block.clear()
            if _evaluate(config, progress, events, work):
                return "success"
            if not finished:
                _start_block(config, progress, events)
        ending = guards.after_step(
            result.loss,
            result.grad_norm,
            result.learning_rate,
            result.nonfinite,
            save=functools.partial(save_now, config, progress, result.flags, events, work, patience_s=STOP_PATIENCE_S),
        )
        if ending is not None:
            return ending
        owed = owed or _due(progress, config.save_interval or 0) or progress.steps in config.save_at
        stops = result.flags.stop_by is not None
        saves = config.saves and (owed or stops or result.flags.save)
        patience_s = STOP_PATIENCE_S if stops else STEP_PATIENCE_S if owed else 0.0
        saves = saves and work.ready_to_save(result.flags, patience_s=patience_s)
        since = time.perf_counter()
        if (saves or _due(progress, config.audit_interval)) and _replicas_differ(progress, events, work):
            return "replicas differ"
        if saves:
            work.save(since)
            owed = False
        if stops:
            return "interrupted"
    return "completed" if benchmark.target_log_perplexity is None else "target not reached"


def save_now(
    config: RunConfig, progress: Progress, flags: StepFlags, events: EventLog, work: Work, *, patience_s: float = 0.0
) -> bool:
    """Begin a checkpoint of a state in doubt, if it is sound: its copies are equal and all of it is finite.

    For when something went wrong, and training ends or may go back. ``flags``: of the step just done. Whether it was
    begun. Collective.
    """
    if not config.saves or not work.ready_to_save(flags, patience_s=patience_s):
        return False
    since = time.perf_counter()
    if not work.is_finite():
        events.note("message", f"after step {progress.iteration}: weights or moments are not finite: not saved")
        return False
    if _replicas_differ(progress, events, work):
        return False
    work.save(since)
    return True


def _due(progress: Progress, interval: int) -> bool:
    return interval > 0 and progress.steps % interval == 0


def _replicas_differ(progress: Progress, events: EventLog, work: Work) -> bool:
    """Compare all copies and log it; a run whose copies differ is not worth continuing or saving."""
    started = time.perf_counter()
    differences = work.audit()
    events.note("audit", steps=progress.steps, differences=differences, seconds=time.perf_counter() - started)
    for difference in differences:
        events.note("message", f"after step {progress.iteration}: {difference}")
    return bool(differences)


def _start_block(config: RunConfig, progress: Progress, events: EventLog) -> None:
    """A block is what is trained between evaluations; the log's epochs are tokens since the checkpoint."""
    tokens = config.benchmark.eval_interval * config.tokens_per_step
    events.start("block_start", first_epoch_num=progress.trained_tokens, epoch_count=tokens)


def _evaluate(config: RunConfig, progress: Progress, events: EventLog, work: Work) -> bool:
    """Evaluate and log; whether the target is met."""
    tokens, target = progress.trained_tokens, config.benchmark.target_log_perplexity
    steps_before = (progress.steps - 1) // config.benchmark.eval_interval * config.benchmark.eval_interval
    started_at = steps_before * config.tokens_per_step
    events.end("block_stop", first_epoch_num=started_at, epoch_count=tokens - started_at)
    events.start("eval_start", epoch_num=tokens)
    started = time.perf_counter()
    result = work.evaluate()
    seconds = time.perf_counter() - started
    progress.evaluations.append(Evaluation(tokens, result.log_perplexity))
    events.point("eval_accuracy", result.log_perplexity, epoch_num=tokens)
    events.end("eval_stop", epoch_num=tokens)
    events.note(
        "evaluation",
        trained_tokens=tokens,
        log_perplexity=result.log_perplexity,
        scored_tokens=result.scored_tokens,
        target=target,
        seconds=seconds,
    )
    return target is not None and result.log_perplexity <= target


def _log_step(
    config: RunConfig, progress: Progress, events: EventLog, result: StepResult, seconds: float, memory_bytes: int
) -> None:
    tokens_per_s = config.tokens_per_step / seconds
    flops = tokens_per_s * train_flops_per_token(config.benchmark.model) / config.system.num_devices
    peak = config.system.peak_tflops
    events.note(
        "step",
        iteration=progress.iteration,
        consumed_samples=progress.consumed_samples,
        trained_tokens=progress.trained_tokens,
        loss=result.loss,
        grad_norm=result.grad_norm,
        learning_rate=result.learning_rate,
        skipped=result.skipped,
        skipped_in_a_row=progress.skipped_in_a_row,
        step_s=seconds,
        tokens_per_s=tokens_per_s,
        tflops_per_device=flops / 1e12,
        mfu=None if peak is None else flops / 1e12 / peak,
        memory_gib=memory_bytes / 2**30,
    )
