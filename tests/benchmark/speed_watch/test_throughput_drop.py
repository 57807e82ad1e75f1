"""When a drop of throughput is told, and what is none."""

import random

import pytest

from benchmark.speed_watch.throughput_drop import SpeedChange, ThroughputDropDetector

BLOOM = [105.16, 105.17, 106.25, 110.17, 111.14]
"""Seconds of steps 42,780 to 42,784 of the BLOOM run; step 45,000 took 111.00."""


def changes(times: list[float], first: int = 1) -> list[tuple[int, SpeedChange]]:
    """With the step that told of each."""
    detector = ThroughputDropDetector()
    found = ((step, detector.add(step, seconds)) for step, seconds in enumerate(times, first))
    return [(step, change) for step, change in found if change is not None]


def around(seconds: float, scatter: float, count: int, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(seconds, scatter * seconds) for _ in range(count)]


def test_the_drop_of_the_bloom_run_is_told_once_within_twenty_steps() -> None:
    before, after = around(105.6, 0.004, 80), around(111.0, 0.004, 200, seed=2)
    ((step, change),) = changes([*before, *BLOOM, *after], first=42_700)
    assert change.kind == "drop"
    assert change.since == 42_783
    assert step <= 42_783 + 20
    assert change.before_s == pytest.approx(105.6, rel=0.005)
    assert change.now_s == pytest.approx(110.6, rel=0.01)
    assert change.loss == pytest.approx(0.05, abs=0.01)


def test_four_percent_are_told_and_two_are_not() -> None:
    ((step, _),) = changes(around(10, 0.01, 60) + around(10.4, 0.01, 100, seed=3))
    assert 60 < step <= 80
    assert changes(around(10, 0.01, 60) + around(10.2, 0.01, 100, seed=3)) == []


def test_single_slow_steps_are_nothing() -> None:
    times = around(10, 0.01, 300)
    for step in (20, 21, 22, 100, 150, 151, 152, 153, 154, 250):
        times[step] = 60.0
    assert changes(times) == []


def test_recovery_a_second_drop_and_one_that_deepens_are_told() -> None:
    times = [one for level in (10, 11, 10, 12, 14) for one in around(level, 0.005, 50)]
    found = changes(times)
    assert [change.kind for _, change in found] == ["drop", "recovery", "drop", "drop"]
    assert [change.since for _, change in found] == [51, 101, 151, 201]
    assert found[2][1].before_s == pytest.approx(10, rel=0.01)


def test_noise_is_no_drop() -> None:
    assert changes(around(10, 0.01, 1000)) == []
    assert len(changes(around(0.1, 0.1, 1000))) <= 1
