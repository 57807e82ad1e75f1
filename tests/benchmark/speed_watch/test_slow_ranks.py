"""Which ranks are named, when, and how rarely wrongly."""

import math
import random
from collections.abc import Sequence

import pytest

from benchmark.speed_watch.slow_ranks import WINDOW, SlowRankDetector, SpeedVerdict


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
    assert named(detector, samples(ranks, 60, 0.03, slow={1: 0.3})) == [(WINDOW - 1, 1)]
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
    assert when < WINDOW
    verdicts = [detector.add(row) for row in samples(8, 30, 0.02, seed=3)]
    assert [list(one.recovered) for one in verdicts if one.recovered] == [[5]]
    assert detector.slow == {}


def test_peers_are_those_with_the_same_part_of_the_model() -> None:
    """Blocks of the second stage take half as long again here; that makes nobody slow."""
    rows = [[*row[:2], *(1.5 * one for one in row[2:])] for row in samples(4, 40, 0.02)]
    assert named(SlowRankDetector([0, 0, 1, 1]), rows) == []
    rows = [[1.3 * row[0], *row[1:]] for row in rows]
    assert named(SlowRankDetector([0, 0, 1, 1]), rows) == [(WINDOW - 1, 0)]


def test_a_rank_that_is_alone_with_its_part_is_compared_with_all() -> None:
    assert named(SlowRankDetector([0, 1]), samples(2, 40, 0.02, slow={1: 0.12})) == []
    assert named(SlowRankDetector([0, 1]), samples(2, 40, 0.02, slow={1: 0.3})) == [(WINDOW - 1, 1)]


def test_ranks_without_a_figure_are_left_out() -> None:
    rows = samples(4, 20, 0.02, slow={3: 0.4})
    rows[0] = [math.nan] * 4
    for row in rows[1:]:
        row[1] = math.nan
    assert named(SlowRankDetector([0] * 4), rows) == [(WINDOW, 3)]
    assert SlowRankDetector([0]).add([0.002]) == SpeedVerdict()


def test_several_are_named_the_slowest_first_and_single_samples_are_nothing() -> None:
    detector, rows = SlowRankDetector([0] * 8), samples(8, WINDOW, 0.01, slow={1: 0.2, 6: 0.4})
    for row in rows[::3]:
        row[2] *= 10
    verdicts = [detector.add(row) for row in rows]
    assert [one.rank for one in verdicts[-1].slow] == [6, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("scatter", "most"), [(0.02, 0), (0.07, 1)])
def test_false_alarms_are_rare(scatter: float, most: int) -> None:
    alarms = named(SlowRankDetector([0, 0]), samples(2, 4000, scatter))
    assert len(alarms) <= most
