"""What a result file says of its run: one typed summary, on which rules, scores, package and report are built."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmark.results.judged import JUDGED, Judged
from benchmark.results.result_log import LogEvent, ResultLog, as_number

STEP_TIMING = ("train_step_timing", "train_step_timing in s")
"""Names that published logs give the seconds of a training step in tracked_stats (docs/facts/mlperf_review.md 6.3)."""
VALIDATION_TIMING = ("validation_step_timing", "validation_step_timing in s")
MOST_SIZE = 10**9
LOSS = ("reduced_train_loss", "train_loss", "loss")


@dataclass(frozen=True)
class LoggedEvaluation:
    """One ``eval_accuracy``."""

    line: int
    tokens: float | None
    """Trained since the initial checkpoint."""
    log_perplexity: float | None
    """None where the log has no finite number."""
    time_ms: int
    seconds: float | None
    """Between eval_start and eval_stop, where both are logged."""


@dataclass(frozen=True)
class LearningRate:
    """The logged schedule; None for what is not there or not a number."""

    base: float | None
    end: float | None
    warmup_steps: float | None
    decay_steps: float | None
    schedule: str | None


@dataclass(frozen=True)
class Tracked:
    """One value of tracked_stats."""

    line: int
    time_ms: int
    tokens: float | None
    """``metadata.step``, tokens so far by the custom of published logs."""
    value: float


@dataclass(frozen=True)
class Restart:
    """The run went on from a checkpoint of its own, its clock running."""

    line: int
    time_ms: int
    number: int | None
    tokens: float | None
    """At which it went on."""


@dataclass(frozen=True)
class RunSummary:
    """One run. Times are milliseconds since the epoch; None stands for what the log does not say."""

    log: ResultLog
    benchmark: str | None
    org: str | None
    platform: str | None
    division: str | None
    status_class: str | None
    """``submission_status``: onprem, cloud, preview or research."""
    seeds: Sequence[int]
    global_batch_size: float | None
    """Samples per step."""
    gradient_accumulation_steps: float | None
    sequence_length: float | None
    learning_rate: LearningRate
    init_checkpoint_step: float | None
    eval_samples: float | None
    evaluations: Sequence[LoggedEvaluation]
    init_start_ms: int | None
    """The first one."""
    init_stop_ms: int | None
    run_start_ms: int | None
    run_stop_ms: int | None
    status: str | None
    """Of run_stop: success or aborted."""
    logged_tokens: float | None
    """``train_samples``."""
    throughput: Sequence[Tracked]
    """Tokens per second of the whole system."""
    step_seconds: Sequence[Tracked]
    losses: Sequence[Tracked]
    restarts: Sequence[Restart]

    @property
    def judged(self) -> Judged | None:
        """The benchmark it is judged as."""
        return JUDGED.get(self.benchmark or "")

    @property
    def target(self) -> float | None:
        return None if self.judged is None else self.judged.target

    @property
    def run_ms(self) -> int | None:
        if self.run_start_ms is None or self.run_stop_ms is None:
            return None
        return self.run_stop_ms - self.run_start_ms

    @property
    def minutes(self) -> float | None:
        """run_start to run_stop, as the official summarizer has it; restarts are on the clock."""
        return None if self.run_ms is None else self.run_ms / 60 / 1000

    @property
    def init_s(self) -> float | None:
        """First init_start to init_stop, not timed."""
        if self.init_start_ms is None or self.init_stop_ms is None:
            return None
        return (self.init_stop_ms - self.init_start_ms) / 1000

    @cached_property
    def reached(self) -> LoggedEvaluation | None:
        """The first evaluation inside the window of the target."""
        judged = self.judged
        if judged is None:
            return None
        for evaluation in self.evaluations:
            value = evaluation.log_perplexity
            if value is not None and judged.floor < value <= judged.target:
                return evaluation
        return None

    @property
    def converged(self) -> bool:
        """What the official RCP checker goes by: the status of run_stop."""
        return self.status == "success"

    @property
    def was_aborted(self) -> bool:
        """Ended on purpose before the target was met: perhaps within a block, with steps after its last evaluation."""
        return self.status == "aborted" and self.reached is None

    @property
    def trained_tokens(self) -> float | None:
        """Since the initial checkpoint, at the last evaluation; failing that, what train_samples says."""
        tokens = [evaluation.tokens for evaluation in self.evaluations if evaluation.tokens is not None]
        return tokens[-1] if tokens else self.logged_tokens

    @property
    def tokens_per_s(self) -> float | None:
        """Of the whole system over the whole run, evaluations included."""
        if self.trained_tokens is None or not self.run_ms or self.run_ms < 0:
            return None
        return self.trained_tokens / (self.run_ms / 1000)

    @property
    def evaluation_s(self) -> float | None:
        """Seconds spent in evaluations, where all of them are logged with their start and stop."""
        seconds = [evaluation.seconds for evaluation in self.evaluations if evaluation.seconds is not None]
        return sum(seconds) if seconds and len(seconds) == len(self.evaluations) else None


def summarize(log: ResultLog) -> RunSummary:
    """The summary of a log; never raises for what is in it."""
    stop = log.first("run_stop")
    return RunSummary(
        log=log,
        benchmark=log.text("submission_benchmark"),
        org=log.text("submission_org"),
        platform=log.text("submission_platform"),
        division=log.text("submission_division"),
        status_class=log.text("submission_status"),
        seeds=[event.value for event in log.all("seed") if type(event.value) is int],
        global_batch_size=_size(log.number("global_batch_size")),
        gradient_accumulation_steps=log.number("gradient_accumulation_steps"),
        sequence_length=_size(log.number("max_sequence_length")),
        learning_rate=_learning_rate(log),
        init_checkpoint_step=log.number("init_checkpoint_step"),
        eval_samples=log.number("eval_samples"),
        evaluations=tuple(_evaluations(log)),
        init_start_ms=min((event.time_ms for event in log.all("init_start")), default=None),
        init_stop_ms=_time(log.first("init_stop")),
        run_start_ms=_time(_run_start(log, stop)),
        run_stop_ms=_time(stop),
        status=_text(None if stop is None else stop.metadata.get("status")),
        logged_tokens=log.number("train_samples"),
        throughput=tuple(tracked(log, ("throughput",))),
        step_seconds=tuple(tracked(log, STEP_TIMING)),
        losses=tuple(tracked(log, LOSS)),
        restarts=tuple(_restart(event) for event in log.all("restart")),
    )


def _learning_rate(log: ResultLog) -> LearningRate:
    return LearningRate(
        base=log.number("opt_base_learning_rate"),
        end=log.number("opt_end_learning_rate"),
        warmup_steps=log.number("opt_learning_rate_warmup_steps"),
        decay_steps=log.number("opt_learning_rate_decay_steps"),
        schedule=log.text("opt_learning_rate_decay_schedule"),
    )


def _time(event: LogEvent | None) -> int | None:
    return None if event is None else event.time_ms


def _run_start(log: ResultLog, stop: LogEvent | None) -> LogEvent | None:
    """The start that the official summarizer takes: the last one before the first run_stop, or the first after it."""
    before = [event for event in log.all("run_start") if stop is None or event.line < stop.line]
    return before[-1] if before else log.first("run_start")


def _evaluations(log: ResultLog) -> Iterator[LoggedEvaluation]:
    """Evaluations with the interval each lies in: from the last eval_start before it to the next eval_stop."""
    started: LogEvent | None = None
    open_ones: list[LogEvent] = []
    for event in log.events:
        if event.key == "eval_start":
            yield from (_evaluation(one, None) for one in open_ones)
            started, open_ones = event, []
        elif event.key == "eval_accuracy":
            open_ones.append(event)
        elif event.key == "eval_stop":
            seconds = None if started is None else (event.time_ms - started.time_ms) / 1000
            yield from (_evaluation(one, seconds) for one in open_ones)
            started, open_ones = None, []
    yield from (_evaluation(one, None) for one in open_ones)


def _evaluation(event: LogEvent, seconds: float | None) -> LoggedEvaluation:
    return LoggedEvaluation(event.line, event.tokens, event.number, event.time_ms, seconds)


def tracked(log: ResultLog, names: Sequence[str]) -> Iterator[Tracked]:
    for event in log.all("tracked_stats"):
        values = event.value if isinstance(event.value, dict) else {}
        for name in names:
            value = as_number(values.get(name))
            if value is not None:
                yield Tracked(event.line, event.time_ms, as_number(event.metadata.get("step")), value)
                break


def _restart(event: LogEvent) -> Restart:
    number = event.value if type(event.value) is int else None
    return Restart(event.line, event.time_ms, number, as_number(event.metadata.get("step")))


def _size(value: float | None) -> float | None:
    """A number of samples or tokens: whole, and not beyond anything that can be trained."""
    return value if value is not None and 1 <= value <= MOST_SIZE and value == int(value) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
