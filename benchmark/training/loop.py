"""The timed loop: step, log, evaluate, stop."""

import time
from typing import Literal, Protocol

from benchmark.config.run_config import RunConfig
from benchmark.events.event_log import EventLog
from benchmark.training.engine.run_progress import Evaluation, Progress
from benchmark.training.step import EvaluationResult, StepResult
from model.flops import train_flops_per_token

MOST_SKIPPED_IN_A_ROW = 10
"""After that many steps without finite gradients a run will not recover by itself."""

Status = Literal["success", "completed", "target not reached", "interrupted", "diverged", "replicas differ"]


class Work(Protocol):
    """What the loop calls. All are collective: every process calls them at the same step."""

    def step(self) -> StepResult:
        """One optimizer step at the current progress."""
        ...

    def evaluate(self) -> EvaluationResult: ...

    def save(self) -> None:
        """Begin to write a checkpoint."""
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
    if progress.steps == 0:
        _start_block(config, progress, events)
    while progress.iteration < benchmark.last_iteration:
        started = time.perf_counter()
        result = work.step()
        progress.steps += 1
        progress.skipped_steps += result.skipped
        progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if result.skipped else 0
        block.append(time.perf_counter() - started)
        _log_step(config, progress, events, result, block[-1], work.memory_bytes())

        finished = progress.iteration >= benchmark.last_iteration
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
        if progress.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            events.note("message", f"{progress.skipped_in_a_row} steps in a row without finite gradients: giving up")
            return "diverged"
        saves = bool(config.save_interval) and (result.stop_requested or _due(progress, config.save_interval))
        if (saves or _due(progress, config.audit_interval)) and _replicas_differ(progress, events, work):
            return "replicas differ"
        if saves:
            work.save()
        if result.stop_requested:
            return "interrupted"
    return "completed" if benchmark.target_log_perplexity is None else "target not reached"


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
        step_s=seconds,
        tokens_per_s=tokens_per_s,
        tflops_per_device=flops / 1e12,
        mfu=None if peak is None else flops / 1e12 / peak,
        memory_gib=memory_bytes / 2**30,
    )
