"""What is timed of a block, and what is not: waiting within, waiting before, other steps."""

import time
from typing import Any

import pytest
import torch
from torch import nn

from benchmark.training.engine.own_compute import MOST_BLOCKS, BlockTimer, DeviceTimer, HostTimer, OwnCompute
from model import tensor_parallel

CPU = torch.device("cpu")


class Seconds(HostTimer):
    """A clock that stands still unless it is told how long something takes."""

    now = 0.0

    def mark(self) -> float:
        return Seconds.now


def takes(seconds: float) -> None:
    Seconds.now += seconds


class Layer(nn.Module):
    """Computes for a second, then waits for the others, and computes again."""

    def __init__(self, own_s: float = 1.0) -> None:
        super().__init__()
        self.own_s = own_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        takes(self.own_s)
        waited_for(5.0)
        takes(self.own_s)
        waited_for(7.0)
        return x


def waited_for(seconds: float) -> None:
    """A collective of tensor parallelism that takes so long."""

    def collective() -> torch.Tensor:
        takes(seconds)
        return torch.zeros(1)

    tensor_parallel._watched(collective)


class Part(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleDict({str(number): Layer() for number in range(layers)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.encoder.layers.values():  # type: ignore[operator]
            takes(3.0)  # between blocks, as for the stage before
            x = layer(x)
        waited_for(2.0)
        return x


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes an OwnCompute on the clock; afterwards nobody watches collectives."""
    monkeypatch.setattr("benchmark.training.engine.own_compute.HostTimer", Seconds)
    monkeypatch.setattr(tensor_parallel.C10D, "wait_tensor", lambda x: x, raising=False)
    yield lambda parts: OwnCompute(parts, CPU, compiled=False)
    tensor_parallel.watch_collectives(None)


def test_waiting_is_taken_off(timed: Any) -> None:
    part = Part(3)
    own = timed([part])
    own.start()
    part(torch.ones(1))
    assert own.stop() == 2.0


def test_steps_that_are_not_timed_leave_nothing(timed: Any) -> None:
    part = Part(2)
    own = timed([part])
    part(torch.ones(1))
    assert own.stop() is None
    own.start()
    assert own.stop() is None
    own.start()
    part(torch.ones(1))
    part.encoder.layers["0"].own_s = 9.0  # type: ignore[index, union-attr]
    assert own.stop() == 2.0
    part(torch.ones(1))
    assert own.stop() == 2.0  # what was timed before


def test_one_slow_call_of_many_is_nothing_on_a_host(timed: Any) -> None:
    """Other programs of the host delay calls; what slows this rank slows all of them."""
    part = Part(20)
    own = timed([part])
    for number in (3, 8, 15):
        part.encoder.layers[str(number)].own_s = 50.0  # type: ignore[index, union-attr]
    own.start()
    part(torch.ones(1))
    assert own.stop() == 2.0
    for layer in part.encoder.layers.values():  # type: ignore[operator]
        layer.own_s = 1.3
    own.start()
    part(torch.ones(1))
    assert own.stop() == pytest.approx(2.6)


def test_a_step_times_so_many_blocks_at_most(timed: Any) -> None:
    parts = [Part(MOST_BLOCKS), Part(5)]
    own = timed(parts)
    own.start()
    for part in parts:
        part(torch.ones(1))
    assert len(own._blocks) == MOST_BLOCKS


class StandInEvent:
    made = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        StandInEvent.made += 1
        self.time_ms = 0.0

    def record(self) -> None:
        self.time_ms = Seconds.now * 1000

    def elapsed_time(self, later: "StandInEvent") -> float:
        return later.time_ms - self.time_ms


def test_events_of_a_gpu_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", StandInEvent)
    timer: BlockTimer = DeviceTimer()
    for _ in range(3):
        timer.forget()
        first = timer.mark()
        takes(0.25)
        assert timer.seconds(first, timer.mark()) == pytest.approx(0.25)
    assert StandInEvent.made == 2


def test_the_hosts_clock_is_in_seconds() -> None:
    timer = HostTimer()
    first = timer.mark()
    time.sleep(0.01)
    timer.forget()
    assert 0.01 <= timer.seconds(first, timer.mark()) < 10
