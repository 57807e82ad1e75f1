"""Note the figures of each step in the event ``step``, and the time when the target is expected in ``eta``."""

import statistics
import time
from collections import deque
from collections.abc import Callable

from benchmark.config.number_formats import Precision
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.status.target_forecast import forecast
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.step import EvaluationResult
from model.flops import train_flops_per_token

EVERY_S = 180.0
"""Seconds between forecasts when there is no evaluation."""
SLOW_STEPS = 2
"""First steps of this process, which take longer: no forecast counts them."""
LATEST_STEPS = 20
"""Number of latest steps whose median is the time of a step: a machine that others leave or share is noticed soon."""


class StepRecord(Observer):
    """Note each step. Its time includes the work of the observers listed before this one."""

    def __init__(self, state: TrainState, precision: Precision, events: EventLog) -> None:
        benchmark, system = state.benchmark, state.system
        self._world, self._progress, self._events = state.world, state.progress, events
        self._tokens = benchmark.tokens_per_step
        self._device_flops = self._tokens * train_flops_per_token(benchmark.model) / system.num_devices
        """Floating-point operations of a step on each device."""
        self._peak_tflops = system.peak_tflops_in(precision)

    def step_done(self, step: FinishedStep) -> None:
        progress, result, seconds = self._progress, step.result, step.seconds()
        tflops = self._device_flops / seconds / 1e12
        self._events.note(
            "step",
            steps=progress.steps,
            iteration=progress.iteration,
            consumed_samples=progress.consumed_samples,
            trained_tokens=progress.trained_tokens,
            loss=result.loss,
            grad_norm=result.grad_norm,
            learning_rate=result.learning_rate,
            skipped=result.skipped,
            skipped_in_a_row=progress.skipped_in_a_row,
            step_s=seconds,
            tokens_per_s=self._tokens / seconds,
            tflops_per_device=tflops,
            mfu=None if self._peak_tflops is None else tflops / self._peak_tflops,
            memory_gib=self._world.peak_memory_bytes() / 2**30,
        )


class TargetEta(Observer):
    """Forecast how long the run still takes to its target: at each evaluation, and every few minutes between them.

    Times are those of this process, so that after a restart on other machines their speed counts.
    """

    def __init__(self, state: TrainState, events: EventLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._benchmark, self._progress, self._events, self._clock = state.benchmark, state.progress, events, clock
        self._step_s: deque[float] = deque(maxlen=LATEST_STEPS)
        self._evaluation_s: list[float] = []
        self._steps, self._pauses_s = 0, 0.0
        """Steps of this process, and the seconds that passed between them, for checkpoints and audits."""
        self._done_at: float | None = None
        """Time at which the last step or evaluation was done."""
        self._said_at: float | None = None

    def before_step(self) -> None:
        if self._done_at is not None:
            self._pauses_s += self._clock() - self._done_at

    def step_done(self, step: FinishedStep) -> None:
        self._steps += 1
        if self._steps > SLOW_STEPS:
            self._step_s.append(step.seconds())
        self._done_at = self._clock()
        if self._said_at is None or self._done_at - self._said_at >= EVERY_S:
            self._note("step")

    def evaluated(self, result: EvaluationResult) -> None:
        assert self._done_at is not None
        time_s, target = self._clock(), self._benchmark.target_log_perplexity
        self._evaluation_s.append(time_s - self._done_at)
        self._done_at = time_s
        if target is None or result.log_perplexity > target:
            self._note("evaluation")

    def _note(self, occasion: str) -> None:
        benchmark, trained_tokens = self._benchmark, self._progress.trained_tokens
        end = (benchmark.last_iteration - benchmark.start_iteration) * benchmark.tokens_per_step
        if self._steps <= SLOW_STEPS or trained_tokens >= end:
            return
        evaluations = [
            (evaluation.trained_tokens, evaluation.log_perplexity) for evaluation in self._progress.evaluations
        ]
        try:
            prediction = forecast(benchmark, evaluations, trained_tokens)
        except (ArithmeticError, ValueError):  # losses beyond all curves: no reason to end a run
            return
        if prediction is None and benchmark.target_log_perplexity is not None:
            return
        tokens, low, high = (
            (end, end, end) if prediction is None else (prediction.tokens, prediction.low, prediction.high)
        )
        self._said_at = self._clock()
        self._events.note(
            "eta",
            after=occasion,
            trained_tokens=trained_tokens,
            target=benchmark.target_log_perplexity,
            target_tokens=min(tokens, end),
            target_tokens_low=min(low, end),
            target_tokens_high=min(high, end),
            seconds=self._seconds(trained_tokens, min(tokens, end)),
            seconds_low=self._seconds(trained_tokens, min(low, end)),
            seconds_high=self._seconds(trained_tokens, min(high, end)),
            step_s=statistics.median(self._step_s),
            basis="end of training" if prediction is None else prediction.basis,
            reaches_target=prediction is not None and tokens <= end,
        )

    def _seconds(self, trained_tokens: int, target_tokens: int) -> float:
        """Return the seconds from ``now`` to ``until`` trained tokens: steps, evaluations, and pauses at their rate so
        far."""
        size, interval = self._benchmark.tokens_per_step, self._benchmark.eval_interval
        evaluations = target_tokens // size // interval - trained_tokens // size // interval
        each_s = statistics.median(self._evaluation_s) if self._evaluation_s else 0.0
        step_s = statistics.median(self._step_s) + self._pauses_s / self._steps
        return (target_tokens - trained_tokens) / size * step_s + evaluations * each_s
