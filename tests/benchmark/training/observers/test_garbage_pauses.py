"""When garbage is collected: between steps, and at no other time."""

import dataclasses
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import benchmark.training.loop as loop_module
from benchmark.config.run_config import RunConfig
from benchmark.training.observer import FinishedStep
from benchmark.training.observers.garbage_pauses import GarbagePauses
from benchmark.training.step import EvaluationResult, StepResult
from benchmark.training.train import train
from tests.benchmark.tiny import TINY, Inputs, in_processes

STEP = FinishedStep(StepResult(3.5, 0.25, 1e-3, False), 0, 0.0)


@pytest.fixture(params=[True, False], ids=["on", "off"])
def pauses(request: pytest.FixtureRequest) -> Iterator[GarbagePauses]:
    """Pauses that have begun; in the end the collector is on or off as it was."""
    was_on = gc.isenabled()
    gc.enable() if request.param else gc.disable()
    pauses = GarbagePauses()
    pauses.begin()
    yield pauses
    pauses.end()
    assert (gc.isenabled(), gc.get_freeze_count()) == (request.param, 0)
    gc.enable() if was_on else gc.disable()


class Node:
    """In a cycle with itself, which only the collector frees."""

    def __init__(self) -> None:
        self.own = self


def test_garbage_is_collected_at_the_end_of_a_step_and_what_outlives_steps_at_an_evaluation(
    pauses: GarbagePauses,
) -> None:
    collections: list[int] = []

    def note(phase: str, found: dict[str, int]) -> None:
        if phase == "start":
            collections.append(found["generation"])

    assert gc.get_freeze_count() > 10_000  # what was there before is set aside
    before = len(gc.get_objects())
    kept = Node()
    outlives = weakref.ref(kept)
    gc.callbacks.append(note)
    try:
        lost = [weakref.ref(Node()) for _ in range(5 * sum(gc.get_threshold()))]
        assert (collections, [node() for node in lost].count(None)) == ([], 0)
        pauses.step_done(STEP)
    finally:
        gc.callbacks.remove(note)
    assert (collections, [node() for node in lost].count(None)) == ([1], len(lost))
    del lost
    pauses.step_done(STEP)
    pauses.step_done(STEP)
    del kept
    pauses.step_done(STEP)
    assert outlives() is not None  # it is no longer among the young
    pauses.evaluated(EvaluationResult(5.0, 9))
    assert outlives() is None
    assert len(gc.get_objects()) < before + 20


def _objects_by_step(config: RunConfig) -> list[int]:
    """How many objects there are at the end of each step, but those from before the first."""
    step, counts = getattr(loop_module, "train_step"), []  # noqa: B009

    def counted(*arguments: Any, **named: Any) -> Any:
        counts.append(len(gc.get_objects()))
        return step(*arguments, **named)

    setattr(loop_module, "train_step", counted)  # noqa: B010
    train(config)
    return counts


@pytest.mark.slow
def test_objects_do_not_grow_in_number(inputs: Inputs, tmp_path: Path) -> None:
    steps = 40
    longer = dataclasses.replace(TINY, train_samples=(4000 + steps) * 12, eval_interval_samples=12 * 20)
    (counts,) = in_processes(1, _objects_by_step, inputs.config(tmp_path / "run", longer))
    assert len(counts) == steps
    assert max(counts) < 10_000  # PyTorch's are set aside
    assert counts[-1] - counts[10] < steps  # the logged figures of a step may stay, a step's tensors may not
