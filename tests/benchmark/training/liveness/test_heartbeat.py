"""Signs of life, how long a phase may take, and who is told of phases."""

import mmap
from typing import Any

import pytest

from benchmark.run_record.phases import PHASES, Phase, PhaseLog
from benchmark.training.liveness import heartbeat as module
from benchmark.training.liveness.heartbeat import FORMAT, SIZE, HangLimits, Heartbeat, ask, latest_beat


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("benchmark.training.liveness.heartbeat.time.monotonic", lambda: now[0])
    return now


def limit_of(heartbeat: Heartbeat) -> float:
    return latest_beat(memory_of(heartbeat)).limit_s


def memory_of(heartbeat: Heartbeat) -> mmap.mmap:
    return mmap.mmap(heartbeat.handle, SIZE)


def step(heartbeat: Heartbeat, clock: list[float], steps: int, seconds: float) -> None:
    for phase in ("data", "passes", "update"):
        heartbeat.enter(phase, steps)
        clock[0] += seconds / 3


def test_beat_tells_phase_steps_and_silence(clock: list[float]) -> None:
    heartbeat = Heartbeat(HangLimits(start_s=50, floor_s=30))
    memory = memory_of(heartbeat)
    clock[0] += 4
    assert latest_beat(memory) == module.Beat("start", None, 4.0, 50)
    for phase in PHASES:
        heartbeat.enter(phase, 7)
        assert latest_beat(memory).phase == heartbeat.phase == phase
    assert (latest_beat(memory).steps, latest_beat(memory).silent_s) == (7, 0)
    heartbeat.leave()
    assert latest_beat(memory).phase is None


def test_first_time_has_the_long_limit_and_later_ten_times_the_median(clock: list[float]) -> None:
    heartbeat = Heartbeat(HangLimits(start_s=1800, floor_s=60))
    step(heartbeat, clock, 0, 600)  # compiling, autotuning
    assert limit_of(heartbeat) == 1800
    for steps in range(1, 20):
        step(heartbeat, clock, steps, 9)
    assert limit_of(heartbeat) == pytest.approx(90)
    heartbeat.enter("evaluation", 19)
    assert limit_of(heartbeat) == 1800
    clock[0] += 40
    heartbeat.enter("data", 19)
    heartbeat.enter("evaluation", 20)
    assert limit_of(heartbeat) == pytest.approx(400)
    for steps in range(20, 50):
        step(heartbeat, clock, steps, 0.2)
    assert limit_of(heartbeat) == 60  # the floor


def test_watchdog_can_ask(clock: list[float]) -> None:
    heartbeat = Heartbeat(HangLimits(50, 30))
    heartbeat.enter("passes", 3)
    assert not heartbeat.is_asked()
    ask(memory_of(heartbeat))
    heartbeat.enter("update", 3)  # a late beat does not take the question back
    assert heartbeat.is_asked()


def test_what_is_no_beat_is_no_phase() -> None:
    memory: Any = bytearray(FORMAT.pack(99, 1, 0.0, 1.0))
    assert latest_beat(memory).phase is None


class Listening:
    def __init__(self) -> None:
        self.heard: list[tuple[Phase, int]] = []

    def enter(self, phase: Phase, steps: int) -> None:
        self.heard.append((phase, steps))


def test_all_observers_are_told() -> None:
    one, two = Listening(), Listening()
    log = PhaseLog(one)
    log.enter("data", 3)
    log.add(two)
    log.enter("passes", 3)
    assert (one.heard, two.heard) == ([("data", 3), ("passes", 3)], [("passes", 3)])
