"""What is noted of a step, and when the run says it will meet its target."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import REHEARSAL
from benchmark.config.reference_curves import REFERENCE_CURVES
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.run_progress import Evaluation, starting_progress
from benchmark.training.observer import FinishedStep
from benchmark.training.observers import step_record
from benchmark.training.observers.step_record import StepRecord, TargetEta
from benchmark.training.step import EvaluationResult, StepResult
from tests.benchmark.run_record.events.recorder import Recorder
from tests.benchmark.tiny import CPU, SHORT

RESULT = StepResult(3.5, 0.25, 1e-3, False)
TOKENS = REHEARSAL.tokens_per_step
CURVE = REFERENCE_CURVES["rehearsal"][0].log_perplexities


@pytest.mark.parametrize("accelerator", ["A100-80GB", ""])
def test_step_as_it_is_noted(accelerator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.training.observer.time.perf_counter", lambda: 9.0)
    events: list[Event] = []
    log, progress = EventLog([Recorder(events.append)]), starting_progress(SHORT, 1)
    system = dataclasses.replace(CPU, accelerator=accelerator)
    world: Any = SimpleNamespace(peak_memory_bytes=lambda: 3 * 2**29)
    state: Any = SimpleNamespace(benchmark=SHORT, system=system, world=world, progress=progress)
    record = StepRecord(state, "bf16", log)
    for _ in range(2):
        progress.count_step(skipped=False)
        record.step_done(FinishedStep(RESULT, 48_000, 7.0))
    log.close()
    noted = events[1].metadata
    assert (noted["iteration"], noted["consumed_samples"], noted["trained_tokens"]) == (4002, 48_024, 2 * 12 * 16)
    assert (noted["loss"], noted["grad_norm"], noted["learning_rate"]) == (3.5, 0.25, 1e-3)
    assert (noted["step_s"], noted["tokens_per_s"]) == (2.0, 12 * 16 / 2.0)
    assert noted["mfu"] == (pytest.approx(noted["tflops_per_device"] / 312) if accelerator else None)
    assert noted["memory_gib"] == 1.5


class Forecasts:
    """The forecasts of a run whose clock is turned by hand."""

    def __init__(self, benchmark: Benchmark = REHEARSAL) -> None:
        self.now_s, self.notes, self.progress = 0.0, list[dict[str, Any]](), starting_progress(benchmark, 1)
        state: Any = SimpleNamespace(benchmark=benchmark, progress=self.progress)
        events: Any = SimpleNamespace(note=lambda key, **fields: self.notes.append({"key": key, **fields}))
        self._eta = TargetEta(state, events, clock=lambda: self.now_s)

    def steps(self, count: int, step_s: float = 2.0, pause_s: float = 0.0) -> None:
        for _ in range(count):
            self.now_s += pause_s
            self._eta.before_step()
            self.now_s += step_s
            self.progress.steps += 1
            done: Any = SimpleNamespace(seconds=lambda: step_s)
            self._eta.step_done(done)

    def evaluation(self, value: float, seconds: float = 10.0) -> None:
        self.now_s += seconds
        self.progress.evaluations.append(Evaluation(self.progress.trained_tokens, value))
        self._eta.evaluated(EvaluationResult(value, 9))


def test_seconds_are_those_of_steps_evaluations_and_pauses() -> None:
    run = Forecasts()
    run.steps(1, step_s=20.0)  # the first is no measure
    run.steps(14)
    run.steps(1, pause_s=8.0)  # for an audit and a checkpoint
    run.evaluation(CURVE[0])
    note = run.notes[-1]
    assert (note["key"], note["after"], note["trained_tokens"]) == ("eta", "evaluation", 16 * TOKENS)
    assert note["target_tokens"] == 13 * 16 * TOKENS
    assert note["target_tokens_low"] <= note["target_tokens"] <= note["target_tokens_high"]
    assert note["step_s"] == 2.0
    assert note["seconds"] == 12 * 16 * (2.0 + 8.0 / 16) + 12 * 10.0
    assert note["seconds_low"] < note["seconds"] < note["seconds_high"]
    assert (note["basis"], note["reaches_target"]) == ("reference curves", True)


def test_between_evaluations_it_is_said_every_few_minutes_from_the_third_step_on() -> None:
    run = Forecasts()
    run.steps(11, step_s=50.0)
    assert [note["trained_tokens"] // TOKENS for note in run.notes] == [3, 7, 11]
    assert {note["after"] for note in run.notes} == {"step"}


def test_a_restart_knows_the_evaluations_before_it() -> None:
    continued, fresh = Forecasts(), Forecasts()
    for number, value in enumerate(CURVE[:6], 1):
        continued.progress.evaluations.append(Evaluation(number * 16 * TOKENS, value + 0.2))
    for run in (continued, fresh):
        run.progress.steps = 96
        run.steps(3)
    assert continued.notes[-1]["target_tokens"] > fresh.notes[-1]["target_tokens"]


def test_nothing_is_said_once_the_target_is_met_or_training_at_its_end() -> None:
    run = Forecasts()
    run.steps(13 * 16)
    count = len(run.notes)
    run.evaluation(2.43)
    assert len(run.notes) == count
    ended = Forecasts()
    ended.progress.steps = REHEARSAL.last_iteration - REHEARSAL.start_iteration
    ended.steps(4)
    assert ended.notes == []


def test_a_forecast_that_cannot_be_computed_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_record, "forecast", lambda *_: math.ceil(math.inf))
    run = Forecasts()
    run.steps(4)
    assert run.notes == []


def test_a_target_beyond_the_end_of_training_is_not_promised() -> None:
    short = dataclasses.replace(REHEARSAL, train_samples=4050 * 16)
    for target in (REHEARSAL.target_log_perplexity, None):
        run = Forecasts(dataclasses.replace(short, target_log_perplexity=target))
        run.steps(3)
        note = run.notes[-1]
        assert (note["reaches_target"], note["target_tokens"], note["target_tokens_high"]) == (
            False,
            50 * TOKENS,
            50 * TOKENS,
        )
    assert (note["basis"], note["seconds"]) == ("end of training", 47 * 2.0)
