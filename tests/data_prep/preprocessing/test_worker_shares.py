"""Workers are shared out so that all files end soonest."""

import random

import pytest

from data_prep.preprocessing.worker_shares import MOST_TO_A_FILE, time_of, workers_per_file

MEGABYTE = 1e6


@pytest.mark.parametrize(
    ("sizes", "workers", "shares"),
    [
        ([], 4, []),
        ([300.0] * 128, 1, [1] * 128),
        ([300.0] * 128, 64, [1] * 128),
        ([300.0] * 4, 2, [1] * 4),
        ([300.0], 2, [2]),
        ([300.0], 100, [MOST_TO_A_FILE]),
        ([300.0] * 3, 2, [2] * 3),
        ([300.0] * 128, 224, [7] * 128),  # 32 files at a time, four times
        ([0.0, 0.0], 4, [1, 1]),
        ([400.0, 10.0, 10.0, 10.0], 8, [7, 1, 1, 1]),  # the small ones meanwhile by the eighth
        ([0.48] * 32, 2, [1] * 32),  # a process for a stripe would take longer than half a file
        ([0.48] * 31, 2, [1] * 31),
        ([0.48], 2, [1]),
    ],
)
def test_shares(sizes: list[float], workers: int, shares: list[int]) -> None:
    assert workers_per_file([size * MEGABYTE for size in sizes], workers) == shares


def test_one_large_file_among_many_small_ones_is_shared() -> None:
    shares = workers_per_file([MEGABYTE] * 1000 + [900 * MEGABYTE], 16)
    assert shares[0] == 1
    assert shares[-1] == 16


def test_never_slower_than_one_worker_each() -> None:
    draw = random.Random(1)
    for _ in range(100):
        sizes = [draw.expovariate(1) * 10 * MEGABYTE for _ in range(draw.randrange(1, 40))]
        workers = draw.randrange(1, 30)
        shares = workers_per_file(sizes, workers)
        assert all(1 <= share <= workers for share in shares)
        found = time_of(sizes, shares, workers)
        assert sum(sizes) / workers <= found * (1 + 1e-9)
        assert found <= time_of(sizes, [1] * len(sizes), workers)
