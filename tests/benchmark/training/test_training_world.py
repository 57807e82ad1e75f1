"""The world of a run: prepared before the processes meet, and left well."""

import os
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from benchmark.run_record.phases import Phase, PhaseLog
from benchmark.training import training_world as module
from benchmark.training.engine.rank_environment import Environment
from benchmark.training.training_world import training_world
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import MODEL


class Phases:
    def __init__(self) -> None:
        self.entered: list[tuple[Phase, bool, str]] = []

    def enter(self, phase: Phase, steps: int) -> None:
        """Note the phase, whether the process group exists, and a variable."""
        self.entered.append((phase, dist.is_initialized(), os.environ.get("TRIED", "")))


@pytest.fixture(autouse=True)
def kernels_as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def test_processes_are_prepared_then_meet_then_prove_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    phases, lines = Phases(), list[str]()
    monkeypatch.setenv("TRIED", "")
    monkeypatch.delenv("TRIED")
    monkeypatch.setattr(module, "settle_attention", lambda *_: "the kernel is right")
    with training_world(
        system_of(1),
        Environment(0, 1, 0),
        deterministic=True,
        attention=(MODEL, "bf16"),
        variables={"TRIED": "yes"},
        phases=PhaseLog(phases),
        note=lines.append,
    ) as world:
        assert (world.rank, world.size, dist.is_initialized()) == (0, 1, True)
        assert torch.are_deterministic_algorithms_enabled()
    assert phases.entered == [("join", False, "yes"), ("load", True, "yes")]
    assert lines == ["the kernel is right"]
    assert not dist.is_initialized()


def test_checks_compute_no_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "settle_attention", lambda *_: pytest.fail("no attention is computed"))
    with training_world(system_of(1), Environment(0, 1, 0)):
        assert not torch.are_deterministic_algorithms_enabled()
