"""What is timed of a block, and what is not: waiting within, waiting before, other steps; and rows of all ranks."""

import math
from collections.abc import Sequence

import pytest
import torch

from benchmark.config.system_config import System
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.rank_speed import MOST_BLOCKS, DeviceTimer, HostTimer, OwnCompute, RankTable
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import in_processes

CPU = torch.device("cpu")


class Seconds(HostTimer):
    """A clock that stands still unless it is told how long something takes."""

    now = 0.0

    def mark(self) -> float:
        return Seconds.now


def takes(seconds: float) -> None:
    Seconds.now += seconds


def pass_through(own: OwnCompute, blocks: int, own_s: float = 1.0, slow: Sequence[int] = ()) -> None:
    """Blocks that compute for a second, wait for the others, and compute again; ``slow`` ones for 50 s at first."""
    for number in range(blocks):
        takes(3.0)  # between blocks, as for the stage before
        own.begin()
        takes(50.0 if number in slow else own_s)
        for waits_s, computes_s in ((5.0, own_s), (7.0, 0.0)):
            own.mark()
            takes(waits_s)
            own.mark()
            takes(computes_s)
        own.end()
    own.mark()


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> OwnCompute:
    """On the clock that stands still."""
    monkeypatch.setattr("benchmark.training.engine.rank_speed.HostTimer", Seconds)
    return OwnCompute(CPU)


def test_waiting_is_taken_off(own: OwnCompute) -> None:
    own.start()
    pass_through(own, MOST_BLOCKS)
    pass_through(own, 5, own_s=9.0)  # so many blocks at most are timed
    assert own.stop() == 2.0


def test_steps_that_are_not_timed_leave_nothing(own: OwnCompute) -> None:
    pass_through(own, 2)
    assert own.stop() is None
    own.start()
    assert own.stop() is None
    own.start()
    pass_through(own, 2)
    assert own.stop() == 2.0
    pass_through(own, 2, own_s=9.0)
    assert own.stop() == 2.0  # what was timed before


def test_one_slow_call_of_many_is_nothing_on_a_host(own: OwnCompute) -> None:
    """Other programs of the host delay calls; what slows this rank slows all of them."""
    own.start()
    pass_through(own, 20, slow=(3, 8, 15))
    assert own.stop() == 2.0
    own.start()
    pass_through(own, 20, own_s=1.3)
    assert own.stop() == pytest.approx(2.6)


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
    timer = DeviceTimer()
    for _ in range(3):
        timer.forget()
        first = timer.mark()
        takes(0.25)
        assert timer.seconds(first, timer.mark()) == pytest.approx(0.25)
    assert StandInEvent.made == 2


Rows = list[list[float]] | None


def _exchange(system: System) -> list[Rows]:
    with joined_world(system, read_environment()) as world:
        table = RankTable(world, 2)
        results = [table.receive()]
        for sent in (1.0, 2.0):
            table.send([world.rank + sent, math.nan if world.rank == 1 else 1e-300])
            world.barrier()
            results += [table.receive(), table.receive()]
        return results


def test_every_rank_receives_what_all_have_sent() -> None:
    expected = [None, [[1.0, 1e-300], [2.0, math.nan]], None, [[2.0, 1e-300], [3.0, math.nan]], None]
    for results in in_processes(2, _exchange, system_of(2)):
        assert repr(results) == repr(expected)
