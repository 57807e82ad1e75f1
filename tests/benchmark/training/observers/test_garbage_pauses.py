"""When garbage is collected: between steps, and at no other time."""

import dataclasses
import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import benchmark.training.loop as loop_module
from benchmark.config.run_config import RunConfig
from benchmark.training.observer import StepDone
from benchmark.training.observers.garbage_pauses import GarbagePauses
from benchmark.training.step import EvaluationResult, StepResult
from benchmark.training.train import train
from tests.benchmark.tiny import TINY, Inputs, in_processes

STEP = StepDone(StepResult(3.5, 0.25, 1e-3, False), 0, 0.0)


@contextmanager
def pausing() -> Iterator[GarbagePauses]:
    pauses = GarbagePauses()
    pauses.begin()
    yield pauses
    pauses.end()


class Node:
    """In a cycle with itself, which only the collector frees."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    was_on = gc.isenabled()
    yield
    assert gc.isenabled() == was_on
    assert gc.get_freeze_count() == 0


def test_nothing_is_collected_before_the_end_of_a_step() -> None:
    collections: list[int] = []

    def note(phase: str, found: dict[str, int]) -> None:
        if phase == "start":
            collections.append(found["generation"])

    with pausing() as garbage:
        gc.callbacks.append(note)
        try:
            lost = [weakref.ref(Node()) for _ in range(5 * sum(gc.get_threshold()))]
            assert (collections, [node() for node in lost].count(None)) == ([], 0)
            garbage.step_done(STEP)
        finally:
            gc.callbacks.remove(note)
        assert collections == [1]
        assert [node() for node in lost].count(None) == len(lost)


def test_what_outlives_steps_is_collected_at_an_evaluation() -> None:
    with pausing() as garbage:
        node = Node()
        lost = weakref.ref(node)
        for _ in range(3):
            garbage.step_done(STEP)
        del node
        garbage.step_done(STEP)
        assert lost() is not None  # it is no longer among the young
        garbage.evaluated(EvaluationResult(5.0, 9))
        assert lost() is None


def test_what_was_there_before_is_set_aside() -> None:
    node = Node()
    with pausing() as garbage:
        assert gc.get_freeze_count() > 10_000
        before = len(gc.get_objects())
        for _ in range(100):
            Node()
            garbage.step_done(STEP)
        assert len(gc.get_objects()) < before + 20
    assert gc.is_tracked(node)


def test_a_collector_that_was_off_stays_off() -> None:
    was_on = gc.isenabled()
    gc.disable()
    with pausing():
        pass
    assert not gc.isenabled()
    if was_on:
        gc.enable()


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
    steps = 60
    long = dataclasses.replace(TINY, train_samples=(4000 + steps) * 12, eval_interval_samples=12 * 20)
    (counts,) = in_processes(1, _objects_by_step, inputs.config(tmp_path / "run", long))
    assert len(counts) == steps
    assert max(counts) < 10_000  # PyTorch's are set aside
    assert counts[-1] - counts[10] < steps  # the logged figures of a step may stay, a step's tensors may not
