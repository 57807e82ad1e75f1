"""Which ranks are named, when a drop of throughput is told, and how rarely wrongly."""

import math
import random
from collections.abc import Sequence

import pytest

from benchmark.training.observers.slowness_rules import (
    SAMPLES,
    SlowRankDetector,
    SpeedChange,
    SpeedVerdict,
    ThroughputDropDetector,
)


def samples(
    ranks: int, count: int, scatter: float, *, slow: dict[int, float] | None = None, seed: int = 1
) -> list[list[float]]:
    """Times around 2 ms; ``slow``: by rank, how much longer it takes."""
    rng = random.Random(seed)
    return [
        [0.002 * math.exp(rng.gauss(0, scatter)) * (1 + (slow or {}).get(rank, 0)) for rank in range(ranks)]
        for _ in range(count)
    ]


def named(detector: SlowRankDetector, rows: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Number of the sample, and rank."""
    return [(number, one.rank) for number, row in enumerate(rows) for one in detector.add(row).slow]


@pytest.mark.parametrize("ranks", [2, 64])
def test_a_rank_that_is_30_percent_slower_is_named_once(ranks: int) -> None:
    detector = SlowRankDetector([0] * ranks)
    assert named(detector, samples(ranks, 60, 0.03, slow={1: 0.3})) == [(SAMPLES - 1, 1)]
    slowest = detector.slowest()
    assert slowest is not None
    assert slowest.rank == 1
    assert slowest.excess == pytest.approx(0.3, abs=0.06)
    assert slowest.seconds / slowest.peers_s == pytest.approx(1.3, abs=0.2)


def test_it_is_named_when_it_becomes_slow_and_recovers() -> None:
    detector = SlowRankDetector(["a"] * 8)
    assert named(detector, samples(8, 30, 0.02)) == []
    ((when, rank),) = named(detector, samples(8, 30, 0.02, slow={5: 0.31}, seed=2))
    assert rank == 5
    assert when < SAMPLES
    verdicts = [detector.add(row) for row in samples(8, 30, 0.02, seed=3)]
    assert [list(one.recovered) for one in verdicts if one.recovered] == [[5]]
    assert detector.slow == {}


def test_peers_are_those_with_the_same_part_of_the_model() -> None:
    """Blocks of the second stage take half as long again here; that makes nobody slow."""
    rows = [[*row[:2], *(1.5 * one for one in row[2:])] for row in samples(4, 40, 0.02)]
    assert named(SlowRankDetector([0, 0, 1, 1]), rows) == []
    rows = [[1.3 * row[0], *row[1:]] for row in rows]
    assert named(SlowRankDetector([0, 0, 1, 1]), rows) == [(SAMPLES - 1, 0)]


def test_a_rank_that_is_alone_with_its_part_is_compared_with_all() -> None:
    assert named(SlowRankDetector([0, 1]), samples(2, 40, 0.02, slow={1: 0.12})) == []
    assert named(SlowRankDetector([0, 1]), samples(2, 40, 0.02, slow={1: 0.3})) == [(SAMPLES - 1, 1)]


def test_ranks_without_a_figure_are_left_out() -> None:
    rows = samples(4, 20, 0.02, slow={3: 0.4})
    rows[0] = [math.nan] * 4
    for row in rows[1:]:
        row[1] = math.nan
    assert named(SlowRankDetector([0] * 4), rows) == [(SAMPLES, 3)]
    assert SlowRankDetector([0]).add([0.002]) == SpeedVerdict()


def test_several_are_named_the_slowest_first_and_single_samples_are_nothing() -> None:
    detector, rows = SlowRankDetector([0] * 8), samples(8, SAMPLES, 0.01, slow={1: 0.2, 6: 0.4})
    for row in rows[::3]:
        row[2] *= 10
    verdicts = [detector.add(row) for row in rows]
    assert [one.rank for one in verdicts[-1].slow] == [6, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("scatter", "most"), [(0.02, 0), (0.07, 1)])
def test_false_alarms_are_rare(scatter: float, most: int) -> None:
    alarms = named(SlowRankDetector([0, 0]), samples(2, 4000, scatter))
    assert len(alarms) <= most


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
