"""Summarise a result file's run: a typed view of its records, on which rules, scores, packages and reports build."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmark.judging.results.judged import JUDGED, Judged, assumed
from benchmark.run_record.events.mllog import LogEvent, ResultLog, as_number

STEP_TIMING = ("train_step_timing", "train_step_timing in s")
"""Names under which published logs give the seconds of a training step in tracked_stats (docs/facts/mlperf_review.md
6.3)."""
MEAN_STEP_TIMING = ("train_step_time",)
STEPS_TIMING = (*STEP_TIMING, *MEAN_STEP_TIMING)
"""The same, with names under which they give the mean of several steps."""
VALIDATION_TIMING = ("validation_step_timing", "validation_step_timing in s", "validation_step_time")
THROUGHPUT = ("throughput",)
"""Name under which published logs give the samples per second of a block's training steps."""
MOST_SIZE = 10**9
BACKWARDS_MS = 1000
"""Milliseconds by which a record may be earlier than the one in front of it, as after a correction by NTP."""
LOSS = ("reduced_train_loss", "train_loss", "loss")


@dataclass(frozen=True)
class LoggedEvaluation:
    """One ``eval_accuracy`` record."""

    line: int
    tokens: float | None
    """Tokens trained since the initial checkpoint."""
    log_perplexity: float | None
    """Log perplexity; None if the log has no finite number."""
    time_ms: int
    seconds: float | None
    """Seconds between eval_start and eval_stop, if both are logged."""


@dataclass(frozen=True)
class Tracked:
    """One value of tracked_stats."""

    line: int
    time_ms: int
    tokens: float | None
    """Tokens so far: by the custom of published logs ``metadata.step``, unless they have the progress by its name."""
    value: float


@dataclass(frozen=True)
class TimedBlock:
    """Block from run_start or an evaluation to the next evaluation."""

    line: int
    """Line of the evaluation at its end."""
    start_ms: int
    stop_ms: int
    tokens: float
    steps: Sequence[float]
    """Logged seconds of its training steps."""
    restarted: bool
    """True if a restart is logged in the block, or an evaluation was repeated."""

    @property
    def seconds(self) -> float:
        return (self.stop_ms - self.start_ms) / 1000


@dataclass(frozen=True)
class RunSummary:
    """One run. Times are milliseconds since the epoch; None stands for values that the log does not have."""

    log: ResultLog
    ruleset: str | None = None
    """Ruleset by which it is judged; None for the newest of its benchmark."""
    expected: Judged | None = None
    """Benchmark that judges the run if its log names no benchmark of the table."""

    @property
    def benchmark(self) -> str | None:
        return self.log.text("submission_benchmark")

    @cached_property
    def judged(self) -> Judged | None:
        """Return the benchmark that the log names; None if it is not in the table."""
        judged = JUDGED.get(self.benchmark or "")
        return None if judged is None else judged.at(self.ruleset)

    @cached_property
    def rules(self) -> Judged:
        """Return the benchmark whose rules judge the run: its log's benchmark, or else the expected one."""
        return self.judged or self.expected or assumed(self.ruleset)

    def tokens_at(self, event: LogEvent) -> float | None:
        """Return the tokens trained since the start, from the metadata of a record."""
        return self._tokens(event.metadata.get(self.rules.log_keys.progress))

    def _tokens(self, logged: object) -> float | None:
        count = as_number(logged)
        return None if count is None else count * self.rules.tokens_per_unit

    @property
    def org(self) -> str | None:
        return self.log.text("submission_org")

    @property
    def platform(self) -> str | None:
        return self.log.text("submission_platform")

    @property
    def division(self) -> str | None:
        return self.log.text("submission_division")

    @cached_property
    def seeds(self) -> Sequence[int]:
        return [event.value for event in self.log.all("seed") if type(event.value) is int]

    @cached_property
    def global_batch_size(self) -> float | None:
        """Samples per step."""
        return _size(self.log.number("global_batch_size"))

    @property
    def sequence_length(self) -> float | None:
        return _size(self.log.number("max_sequence_length"))

    @property
    def target(self) -> float | None:
        return None if self.judged is None else self.judged.target

    @cached_property
    def evaluations(self) -> Sequence[LoggedEvaluation]:
        """Return the evaluations, each with its interval from the last eval_start before it to the next eval_stop."""
        evaluations: list[LoggedEvaluation] = []
        started: LogEvent | None = None
        waiting = 0
        for event in self.log.events:
            if event.key == "eval_start":
                started, waiting = event, len(evaluations)
            elif event.key == "eval_accuracy":
                evaluations.append(
                    LoggedEvaluation(event.line, self.tokens_at(event), event.number, event.time_ms, None)
                )
            elif event.key == "eval_stop" and started is not None:
                seconds = (event.time_ms - started.time_ms) / 1000
                evaluations[waiting:] = [
                    LoggedEvaluation(
                        evaluation.line, evaluation.tokens, evaluation.log_perplexity, evaluation.time_ms, seconds
                    )
                    for evaluation in evaluations[waiting:]
                ]
                started, waiting = None, len(evaluations)
        return tuple(evaluations)

    @cached_property
    def run_start_ms(self) -> int | None:
        """Return the start that the official summarizer takes: the last before the first run_stop, or else the first
        after it."""
        stop, starts = self.log.first("run_stop"), self.log.all("run_start")
        earlier_starts = [event for event in starts if stop is None or event.line < stop.line]
        return earlier_starts[-1].time_ms if earlier_starts else starts[0].time_ms if starts else None

    @property
    def run_stop_ms(self) -> int | None:
        stop = self.log.first("run_stop")
        return None if stop is None else stop.time_ms

    @property
    def run_ms(self) -> int | None:
        start, stop = self.run_start_ms, self.run_stop_ms
        return None if start is None or stop is None else stop - start

    @property
    def minutes(self) -> float | None:
        """Return the minutes from run_start to run_stop, as the official summarizer does; restarts are on the clock."""
        return None if self.run_ms is None else self.run_ms / 60 / 1000

    @property
    def init_s(self) -> float | None:
        """Return the seconds from the first init_start to init_stop, which are not timed."""
        start, stop = (
            min((event.time_ms for event in self.log.all("init_start")), default=None),
            self.log.first("init_stop"),
        )
        return None if start is None or stop is None else (stop.time_ms - start) / 1000

    @property
    def status(self) -> str | None:
        """Return the status of run_stop: success or aborted."""
        stop = self.log.first("run_stop")
        status = None if stop is None else stop.metadata.get("status")
        return status if isinstance(status, str) else None

    @cached_property
    def reached(self) -> LoggedEvaluation | None:
        """Return the first evaluation inside the window of the target."""
        judged = self.judged
        for evaluation in self.evaluations if judged else ():
            value = evaluation.log_perplexity
            if judged and value is not None and judged.score.floor < value <= judged.target:
                return evaluation
        return None

    @property
    def converged(self) -> bool:
        """Return whether the run converged as the official RCP checker sees it: by the status of run_stop."""
        return self.status == "success"

    @property
    def was_aborted(self) -> bool:
        """Return whether the log says that the run ended before it met the target, perhaps within a block, with steps
        after its last evaluation. Any word but success says so, as in the official RCP checker."""
        return self.status not in (None, "success") and self.reached is None

    @property
    def breaks_off(self) -> bool:
        """Return whether the log ends within the run or its initialisation, as the log of a killed job does."""
        return bool(self.log.events) and not self.log.all("run_stop")

    @property
    def trained_tokens(self) -> float | None:
        """Return the tokens since the start at the last evaluation; without an evaluation, the value of
        train_samples, if the log counts in tokens: elsewhere it may be the size of the dataset."""
        tokens = [evaluation.tokens for evaluation in self.evaluations if evaluation.tokens is not None]
        if tokens:
            return tokens[-1]
        return self.log.number("train_samples") if self.rules.unit == "tokens" else None

    @property
    def tokens_per_s(self) -> float | None:
        """Return the tokens per second of the whole system over the whole run, evaluations included."""
        tokens, run_ms = self.trained_tokens, self.run_ms
        return tokens / (run_ms / 1000) if tokens is not None and run_ms and run_ms > 0 else None

    @property
    def evaluation_s(self) -> float | None:
        """Return the seconds spent in evaluations, if all of them are logged with start and stop."""
        seconds = [evaluation.seconds for evaluation in self.evaluations if evaluation.seconds is not None]
        return sum(seconds) if seconds and len(seconds) == len(self.evaluations) else None

    @cached_property
    def step_seconds(self) -> Sequence[Tracked]:
        return self.tracked(STEPS_TIMING)

    @cached_property
    def blocks(self) -> Sequence[TimedBlock]:
        """Return all blocks, the first included. A block may contain an evaluation that a restart repeated."""
        blocks: list[TimedBlock] = []
        steps = sorted(self.tracked(STEP_TIMING), key=lambda evaluation: evaluation.line)
        start_ms, tokens, step_index, repeated, line = self.run_start_ms or 0, 0.0, 0, False, 0
        for evaluation in self.evaluations if self.run_start_ms is not None else ():
            if evaluation.tokens is None or evaluation.tokens <= tokens:
                repeated = repeated or (bool(evaluation.tokens) and abs(evaluation.time_ms - start_ms) > BACKWARDS_MS)
                continue
            first_step = step_index
            while step_index < len(steps) and steps[step_index].line <= evaluation.line:
                step_index += 1
            step_times = [step.value for step in steps[first_step:step_index]]
            restarted = repeated or any(line < restart.line < evaluation.line for restart in self.restarts)
            blocks.append(
                TimedBlock(
                    evaluation.line, start_ms, evaluation.time_ms, evaluation.tokens - tokens, step_times, restarted
                )
            )
            start_ms, tokens, repeated, line = evaluation.time_ms, evaluation.tokens, False, evaluation.line
        return blocks

    @property
    def losses(self) -> Sequence[Tracked]:
        return self.tracked(LOSS)

    @property
    def restarts(self) -> Sequence[LogEvent]:
        """Return the restarts: the records at which the run resumed from its checkpoint, with its clock running."""
        return self.log.all("restart")

    def tracked(self, names: Sequence[str]) -> Sequence[Tracked]:
        """Return the values of tracked_stats, each under the first of these names that its record has."""
        by_line = {number.line: number for name in reversed(names) for number in self._tracked.get(name, ())}
        return tuple(by_line[line] for line in sorted(by_line))

    @cached_property
    def _tracked(self) -> dict[str, list[Tracked]]:
        """Return all numbers of tracked_stats by their name."""
        tracked: dict[str, list[Tracked]] = {}
        progress, scale = self.rules.log_keys.progress, self.rules.tokens_per_unit
        for event in self.log.all("tracked_stats"):
            count = as_number(event.metadata.get(progress, event.metadata.get("step")))
            tokens = None if count is None else count * scale
            for name, logged in event.value.items() if isinstance(event.value, dict) else ():
                value = as_number(logged)
                if value is not None:
                    tracked.setdefault(name, []).append(Tracked(event.line, event.time_ms, tokens, value))
        return tracked

    @cached_property
    def steps_back(self) -> Sequence[tuple[LogEvent, LogEvent]]:
        """Return each record of the run whose time is before that of the record in front of it, which comes first."""
        start, stop = self.log.first("run_start"), self.log.first("run_stop")
        first, last = (start.line if start else 0), (stop.line if stop else math.inf)
        run = [event for event in self.log.events if start is not None and first <= event.line <= last]
        return tuple(
            (previous, event)
            for previous, event in itertools.pairwise(run)
            if previous.time_ms - event.time_ms > BACKWARDS_MS and event.key != "cache_clear"
        )


def _size(value: float | None) -> float | None:
    """Return a number of samples or tokens, if it is whole and not larger than anyone can train."""
    return value if value is not None and 1 <= value <= MOST_SIZE and value == int(value) else None
