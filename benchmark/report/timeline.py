"""Where the time of a run went, from its first init_start to its run_stop.

A run with ``events.jsonl`` tells all of it: the durations that its steps, evaluations and checkpoints have logged. A
published log tells init, and evaluations where they have a start and a stop; the rest is training with all that goes
with it. A part that cannot be told is not among the parts, rather than zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchmark.results.recorded_events import RecordedEvent
from benchmark.results.recorded_run import RecordedRun

Part = Literal["init", "train", "evaluate", "checkpoint", "lost", "waiting", "other"]
MEANINGS: Mapping[Part, str] = {
    "init": "from init_start to init_stop, not timed by the rules",
    "train": "steps that count",
    "evaluate": "evaluations that count",
    "checkpoint": "pauses for checkpoints",
    "lost": "steps and evaluations that a restart threw away",
    "waiting": "from the last event of an interrupted process to the restart",
    "other": "between these: reading data, logging, stopping",
}
BEFORE_RESTART = ("message", "inputs", "environment", "restart")
"""Events of a process that continues a run, before it does."""


@dataclass(frozen=True)
class Timeline:
    """Seconds by part. ``marks`` are in milliseconds since the epoch."""

    seconds: Mapping[Part, float]
    evaluations: Sequence[int] = ()
    """Ends of evaluations."""
    checkpoints: Sequence[int] = ()
    """Ends of checkpoints."""
    restarts: Sequence[int] = ()
    merged: bool = False
    """Whether train holds what the log does not tell apart."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


@dataclass
class _Work:
    """One step or evaluation that has ended."""

    part: Part
    tokens: float
    seconds: float


@dataclass
class _Reading:
    """What has been met so far of a run's events."""

    done: list[_Work] = field(default_factory=list)
    seconds: dict[Part, float] = field(default_factory=lambda: {"checkpoint": 0.0, "lost": 0.0, "waiting": 0.0})
    evaluations: list[int] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)

    def meet(self, event: RecordedEvent, last_work_ms: int) -> None:
        tokens, seconds = event.number("trained_tokens"), event.number("seconds")
        step_s = event.number("step_s")
        if event.key == "step" and tokens is not None and step_s is not None:
            self.done.append(_Work("train", tokens, step_s))
        elif event.key == "evaluation" and tokens is not None and seconds is not None:
            self.done.append(_Work("evaluate", tokens, seconds))
            self.evaluations.append(event.time_ms)
        elif event.key == "checkpoint" and seconds is not None:
            self.seconds["checkpoint"] += seconds
            self.checkpoints.append(event.time_ms)
        elif event.key == "restart":
            self._go_on_from(event.number("step") or 0)
            self.seconds["waiting"] += (event.time_ms - last_work_ms) / 1000
            self.restarts.append(event.time_ms)

    def _go_on_from(self, tokens: float) -> None:
        """What was done beyond the checkpoint never happened."""
        self.seconds["lost"] += sum(work.seconds for work in self.done if work.tokens > tokens)
        self.done = [work for work in self.done if work.tokens <= tokens]


def timeline(run: RecordedRun) -> Timeline:
    """Where the time of ``run`` went."""
    return _of_events(run) if any(event.key == "step" for event in run.events) else _of_log(run)


def _of_log(run: RecordedRun) -> Timeline:
    summary = run.summary
    seconds: dict[Part, float] = {}
    if summary.init_s is not None:
        seconds["init"] = summary.init_s
    evaluations = summary.evaluation_s
    if summary.run_ms is not None:
        seconds["train"] = summary.run_ms / 1000 - (evaluations or 0.0)
    if evaluations is not None:
        seconds["evaluate"] = evaluations
    marks = [evaluation.time_ms for evaluation in summary.evaluations]
    return Timeline(seconds, marks, (), [restart.time_ms for restart in summary.restarts], merged=True)


def _of_events(run: RecordedRun) -> Timeline:
    summary, reading = run.summary, _Reading()
    last_work_ms = 0
    for event in run.events:
        reading.meet(event, last_work_ms)
        if event.key not in BEFORE_RESTART:
            last_work_ms = event.time_ms
    seconds: dict[Part, float] = {} if summary.init_s is None else {"init": summary.init_s}
    for part in ("train", "evaluate"):
        seconds[part] = sum(work.seconds for work in reading.done if work.part == part)
    seconds.update(reading.seconds)
    if summary.run_ms is not None:
        timed = sum(amount for part, amount in seconds.items() if part != "init")
        seconds["other"] = max(0.0, summary.run_ms / 1000 - timed)
    return Timeline(seconds, reading.evaluations, reading.checkpoints, reading.restarts)
