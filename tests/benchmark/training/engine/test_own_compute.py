"""What is timed of a block, and what is not: waiting within, waiting before, other steps."""

import time
from collections.abc import Sequence

import pytest
import torch

from benchmark.training.engine.rank_speed import MOST_BLOCKS, BlockTimer, DeviceTimer, HostTimer, OwnCompute

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
        own.pause()
        takes(5.0)
        own.resume()
        takes(own_s)
        own.pause()
        takes(7.0)
        own.resume()
        own.end()
    own.pause()
    takes(2.0)
    own.resume()


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> OwnCompute:
    """On the clock that stands still."""
    monkeypatch.setattr("benchmark.training.engine.rank_speed.HostTimer", Seconds)
    return OwnCompute(CPU)


def test_waiting_is_taken_off(own: OwnCompute) -> None:
    own.start()
    pass_through(own, 3)
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


def test_a_step_times_so_many_blocks_at_most(own: OwnCompute) -> None:
    own.start()
    pass_through(own, MOST_BLOCKS)
    pass_through(own, 5, own_s=9.0)
    assert own.stop() == 2.0


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
