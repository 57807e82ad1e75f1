"""The loop, with steps that do nothing: what it tells its observers and when, what it logs, how it ends."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import benchmark.training.loop as loop_module
from benchmark.config.benchmark_config import Benchmark
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.run_record.run_progress import Progress, starting_progress
from benchmark.training.loop import TrainingRun, run_loop
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.step import EvaluationResult, StepFlags, StepResult
from tests.benchmark.run_record.events.recorder import Recorder
from tests.benchmark.tiny import SHORT

TOKENS = 12 * 16
"""Of a step."""
VETO = StopReason("failed", "a guard said so")


class Told(Observer):
    """Writes down what it is told; ends the run after the step of the number ``veto``."""

    def __init__(self, veto: int | None = None) -> None:
        self.calls: list[str] = []
        self._veto = veto

    def before_step(self) -> StepFlags | None:
        self.calls.append("before")
        return StepFlags(save=True)

    def step_done(self, step: FinishedStep) -> None:
        self.calls.append("step")

    def evaluated(self, result: EvaluationResult) -> None:
        self.calls.append("evaluated")

    def between_steps(self, step: FinishedStep) -> StopReason | None:
        self.calls.append("between")
        return VETO if self.calls.count("step") == self._veto else None

    def end(self, end: StopReason) -> None:
        self.calls.append("end")


def loop(
    monkeypatch: pytest.MonkeyPatch,
    benchmark: Benchmark = SHORT,
    values: Sequence[float] = (5.0, 4.0),
    of_step: Callable[[int], dict[str, Any]] = lambda _: {},
    progress: Progress | None = None,
    told: Told | None = None,
) -> tuple[StopReason, Progress, list[Event], list[str]]:
    """Six steps, an evaluation after each third; ``of_step`` changes the result of the step with that number."""
    progress = progress or starting_progress(benchmark, 1)
    supplied: Iterator[float] = iter(values)
    state: Any = SimpleNamespace(benchmark=benchmark, progress=progress)

    def train_step(*_: Any, flags: StepFlags) -> StepResult:
        assert flags == StepFlags(save=True)
        result = StepResult(loss=3.5, grad_norm=0.25, learning_rate=1e-3, skipped=False)
        return dataclasses.replace(result, **of_step(progress.steps + 1))

    monkeypatch.setattr(loop_module, "train_step", train_step)
    monkeypatch.setattr(loop_module, "evaluate", lambda *_: EvaluationResult(next(supplied), 99))
    events: list[Event] = []
    log, told = EventLog([Recorder(events.append)]), told or Told()
    batches: Any = SimpleNamespace(at=lambda _: [])
    windows: Any = None
    end = run_loop(TrainingRun(state, batches, windows, log, PhaseLog()), [told])
    log.close()
    return end, progress, events, told.calls


def of(events: Sequence[Event], key: str) -> list[Event]:
    return [event for event in events if event.key == key]


def test_what_observers_are_told_and_in_which_order(monkeypatch: pytest.MonkeyPatch) -> None:
    end, progress, _, calls = loop(monkeypatch)
    plain, evaluated = ["before", "step", "between"], ["before", "step", "evaluated", "between"]
    assert calls == [*plain, *plain, *evaluated, *plain, *plain, *evaluated, "end"]
    assert (end.ending, end.reached_target) == ("success", False)  # there is no target
    assert (progress.steps, progress.trained_tokens) == (6, 6 * TOKENS)
    evaluations = [(evaluation.trained_tokens, evaluation.log_perplexity) for evaluation in progress.evaluations]
    assert evaluations == [(3 * TOKENS, 5.0), (6 * TOKENS, 4.0)]


def test_last_step_is_evaluated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, events, calls = loop(monkeypatch, dataclasses.replace(SHORT, train_samples=4005 * 12))
    assert [calls[:index].count("step") for index, call in enumerate(calls) if call == "evaluated"] == [3, 5]
    stops = [event.metadata for event in of(events, "block_stop")]
    assert stops == [
        {"first_epoch_num": 0, "epoch_count": 3 * TOKENS},
        {"first_epoch_num": 3 * TOKENS, "epoch_count": 2 * TOKENS},
    ]


@pytest.mark.parametrize(
    ("value", "ending", "steps"),
    [(2.7, "success", 3), (2.7000001, "target not reached", 6), (float("nan"), "target not reached", 6)],
)
def test_target_is_met_at_the_target_itself_and_ends_the_run(
    value: float, ending: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    targeted = dataclasses.replace(SHORT, target_log_perplexity=2.7)
    end, progress, _, calls = loop(monkeypatch, targeted, [value, 2.8])
    assert (end.ending, end.reached_target, progress.steps) == (ending, ending == "success", steps)
    assert calls[-2:] == (["evaluated", "end"] if ending == "success" else ["between", "end"])


@pytest.mark.parametrize("asked", [True, False], ids=["request to stop", "observer's veto"])
def test_run_ends_after_the_step_in_which_it_is_asked_to(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    end, progress, _, calls = loop(
        monkeypatch,
        of_step=lambda number: {"flags": StepFlags(sigterm=asked and number == 2)},
        told=Told(veto=None if asked else 2),
    )
    assert (end, progress.steps) == (StopReason("interrupted", "signal SIGTERM") if asked else VETO, 2)
    assert calls[-2:] == ["between", "end"]


def test_skipped_steps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    _, progress, _, _ = loop(monkeypatch, of_step=lambda number: {"skipped": number in (2, 5, 6)})
    assert (progress.steps, progress.skipped_steps, progress.skipped_in_a_row) == (6, 3, 2)
    assert progress.consumed_samples == 48_000 + 6 * 12
    assert progress.scheduled_samples == 48_000 + 3 * 12


def test_events_of_a_block_and_its_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, events, _ = loop(monkeypatch)
    block = ["block_start", "tracked_stats", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    assert [event.key for event in events if event.mlperf] == block * 2
    starts = [event.metadata for event in of(events, "block_start")]
    assert starts == [{"first_epoch_num": start * TOKENS, "epoch_count": 3 * TOKENS} for start in (0, 3)]
    assert [event.metadata["epoch_num"] for event in of(events, "eval_accuracy")] == [3 * TOKENS, 6 * TOKENS]
    assert of(events, "tracked_stats")[1].value["reduced_train_loss"] == 3.5
    evaluation = of(events, "evaluation")[0].metadata
    assert (evaluation["log_perplexity"], evaluation["scored_tokens"], evaluation["target"]) == (5.0, 99, None)


def test_continued_run_goes_on_inside_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = dataclasses.replace(starting_progress(SHORT, 1), steps=2)
    _, _, events, calls = loop(monkeypatch, progress=progress)
    assert [calls[:index].count("step") for index, call in enumerate(calls) if call == "evaluated"] == [1, 4]
    assert [event.metadata["first_epoch_num"] for event in of(events, "block_start")] == [3 * TOKENS]
