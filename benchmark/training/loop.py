"""The timed loop: step, evaluate, log, stop."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.config.benchmark_config import Benchmark
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.mlperf_log import block_fields, logged_progress, progress_fields
from benchmark.run_record.phases import Phase, PhaseLog
from benchmark.run_record.run_progress import Evaluation, Progress
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.step import EvaluationResult, any_of, evaluate, train_step
from data_prep.sample_order.token_windows import TokenWindows


@dataclass(frozen=True)
class TrainingRun:
    """Everything that the loop works on."""

    state: TrainState
    batches: TrainingBatches
    validation: TokenWindows
    events: EventLog
    phases: PhaseLog

    @property
    def benchmark(self) -> Benchmark:
        return self.state.benchmark

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def enter(self, phase: Phase) -> None:
        self.phases.enter(phase, self.progress.steps)


def run_loop(run: TrainingRun, observers: Sequence[Observer]) -> StopReason:
    """Train until the target, the end of training, a request to stop or an observer's veto. Collective.

    Evaluations come every ``eval_interval`` steps since the start, and at the very end. The target is met by a log
    perplexity at or below it, as in the rules' checker (docs/facts/reference.md j.31).
    """
    end = _train(run, observers)
    run.enter("end")
    for observer in observers:
        observer.end(end)
    run.enter("end")  # a checkpoint was waited for meanwhile; now this process waits for the others
    return end


def _train(run: TrainingRun, observers: Sequence[Observer]) -> StopReason:
    benchmark, progress, step_seconds = run.benchmark, run.progress, list[float]()
    if progress.steps == 0:  # the log of a resumed run has the start of its interval already
        _log_interval_start(run)
    while progress.iteration < benchmark.last_iteration:
        step = _step(run, observers)
        step_seconds.append(step.seconds())
        is_last = progress.iteration == benchmark.last_iteration
        if is_last or progress.steps % benchmark.eval_interval == 0:
            _log_interval(run, step.result.loss, step_seconds)
            evaluation = _evaluate(run)
            for observer in observers:
                observer.evaluated(evaluation)
            if (
                benchmark.target_log_perplexity is not None
                and evaluation.log_perplexity <= benchmark.target_log_perplexity
            ):
                return StopReason("success", "target reached", reached_target=True)
            if not is_last:
                _log_interval_start(run)
        if (veto := veto_between_steps(step, observers)) is not None:
            return veto
        if step.result.flags.stop_by is not None:
            return StopReason("interrupted", step.result.flags.stop_by)
    if benchmark.target_log_perplexity is None:
        return StopReason("success", "all samples trained")
    return StopReason("target not reached", "all samples trained")


def _step(run: TrainingRun, observers: Sequence[Observer]) -> FinishedStep:
    """Do one step, count it and tell the observers."""
    began, first_sample = time.perf_counter(), run.progress.consumed_samples
    run.enter("data")
    flags = any_of([requested for observer in observers if (requested := observer.before_step()) is not None])
    batches = run.batches.at(first_sample)
    result = train_step(run.state, batches, run.enter, flags=flags)
    run.progress.count_step(skipped=result.skipped)
    step = FinishedStep(result, first_sample, began)
    for observer in observers:
        observer.step_done(step)
    return step


def veto_between_steps(step: FinishedStep, observers: Sequence[Observer]) -> StopReason | None:
    """Tell the observers that the run continues; if a checkpoint is due, announce it to them, too: the checkpoint
    saver, behind the observers that veto, begins to write it. Return how the run ends if an observer vetoes."""
    for observer in observers:
        if (end := observer.between_steps(step)) is not None:
            return end
    saves = [observer.save_due(step) for observer in observers]
    if any(saves):
        for observer in observers:
            if (end := observer.about_to_save()) is not None:
                return end
    return None


def _evaluate(run: TrainingRun) -> EvaluationResult:
    """Evaluate the validation set, count the evaluation and log it."""
    progress, events, benchmark = run.progress, run.events, run.benchmark
    tokens = progress.trained_tokens
    steps_before = (progress.steps - 1) // benchmark.eval_interval * benchmark.eval_interval
    start_tokens = steps_before * benchmark.tokens_per_step
    fields = progress_fields(benchmark, tokens)
    events.end("block_stop", **block_fields(benchmark, start_tokens, tokens - start_tokens, ended=True))
    events.start("eval_start", **fields)
    run.enter("evaluation")
    began = time.perf_counter()
    result = evaluate(run.state, run.validation)
    seconds = time.perf_counter() - began
    progress.evaluations.append(Evaluation(tokens, result.log_perplexity))
    events.point("eval_accuracy", result.log_perplexity, **fields)
    events.end("eval_stop", **fields)
    events.note(
        "evaluation",
        trained_tokens=tokens,
        log_perplexity=result.log_perplexity,
        scored_tokens=result.scored_tokens,
        target=benchmark.target_log_perplexity,
        seconds=seconds,
    )
    return result


def _log_interval_start(run: TrainingRun) -> None:
    """Log the start of an interval between two evaluations, which MLPerf calls a block. The log counts tokens since the
    checkpoint, or samples."""
    tokens = run.benchmark.eval_interval * run.benchmark.tokens_per_step
    run.events.start("block_start", **block_fields(run.benchmark, run.progress.trained_tokens, tokens, ended=False))


def _log_interval(run: TrainingRun, loss: float, step_seconds: list[float]) -> None:
    """Log the statistics of the steps since the last evaluation, then clear ``step_seconds``. ``loss``: the last
    step's."""
    mean_s = sum(step_seconds) / len(step_seconds)
    step_seconds.clear()
    stats = {
        "train_step_timing": mean_s,
        "throughput": run.benchmark.tokens_per_step / mean_s,
        "reduced_train_loss": loss,
    }
    run.events.point("tracked_stats", stats, step=logged_progress(run.benchmark, run.progress.trained_tokens))
