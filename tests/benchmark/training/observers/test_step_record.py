"""A step as it is noted."""

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark.events.event import Event
from benchmark.events.event_log import EventLog
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.observer import StepDone
from benchmark.training.observers.step_record import StepRecord
from benchmark.training.step import StepResult
from tests.benchmark.events.recorder import Recorder
from tests.benchmark.tiny import CPU, SHORT


@pytest.mark.parametrize("accelerator", ["A100-80GB", ""])
def test_step_as_it_is_noted(accelerator: str) -> None:
    seen: list[Event] = []
    log, progress = EventLog([Recorder(seen.append)]), starting_progress(SHORT, 1)
    system = dataclasses.replace(CPU, accelerator=accelerator)
    world: Any = SimpleNamespace(peak_memory_bytes=lambda: 3 * 2**29)
    state: Any = SimpleNamespace(benchmark=SHORT, system=system, world=world, progress=progress)
    record = StepRecord(state, log)
    for _ in range(2):
        progress.count_step(skipped=False)
        record.step_done(StepDone(StepResult(3.5, 0.25, 1e-3, False), 48_000, time.perf_counter() - 2.0))
    log.close()
    noted = seen[1].metadata
    assert (noted["iteration"], noted["consumed_samples"], noted["trained_tokens"]) == (4002, 48_024, 2 * 12 * 16)
    assert (noted["loss"], noted["grad_norm"], noted["learning_rate"]) == (3.5, 0.25, 1e-3)
    assert noted["step_s"] == pytest.approx(2.0, rel=0.1)
    assert noted["tokens_per_s"] == pytest.approx(12 * 16 / noted["step_s"])
    assert noted["mfu"] == (pytest.approx(noted["tflops_per_device"] / 312) if accelerator else None)
    assert noted["memory_gib"] == 1.5
