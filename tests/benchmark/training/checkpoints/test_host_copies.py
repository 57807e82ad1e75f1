"""Room for copies: nothing overlaps, and page-locked memory is not rounded up to twice its size."""

import itertools
import random

import pytest
import torch

from benchmark.training.checkpoints.host_copies import ALIGNMENT, host_copies, packed


@pytest.mark.parametrize("seed", range(20))
def test_parts_lie_side_by_side(seed: int) -> None:
    drawn = random.Random(seed)
    largest = drawn.choice([1, 3000, 40_000])
    sizes = [drawn.randrange(largest) for _ in range(drawn.randrange(60))]
    places, lengths = packed(sizes, piece=8192)
    taken = sorted((*place, size) for place, size in zip(places, sizes, strict=True) if size)
    assert all(start % ALIGNMENT == 0 and start + size <= lengths[piece] for piece, start, size in taken)
    for (piece, start, size), (other, after, _) in itertools.pairwise(taken):
        assert piece < other or start + size <= after
    assert len(places) == len(sizes)


def rounded_up(size: int) -> int:
    """As PyTorch takes page-locked memory."""
    return 1 << max(0, size - 1).bit_length()


@pytest.mark.parametrize("data_parallel", [1, 2, 16])
def test_a_rank_of_the_175b_model_takes_little_more_than_its_state(data_parallel: int) -> None:
    """Twelve layers with TP 4, weights and two moments, sharded."""
    hidden, shared = 12288, 4
    matrices = [3 * hidden // shared, hidden // shared, 4 * hidden // shared, 4 * hidden // shared]
    rows = [rows * hidden for rows in matrices] + [hidden] * 6 + [3 * hidden // shared, 4 * hidden // shared]
    sizes = [4 * -(-values // data_parallel) for values in rows] * 12 * 3
    of_each = sum(map(rounded_up, sizes))
    _, lengths = packed(sizes)
    together = sum(map(rounded_up, lengths))
    assert of_each > 1.6 * sum(sizes)
    assert together < 1.04 * sum(sizes)


def test_room_on_a_cpu() -> None:
    parts = {"a": torch.ones(3, 5), "b": torch.zeros(0, 4), "c": torch.arange(7, dtype=torch.bfloat16)}
    copies = host_copies(parts)
    for name, part in parts.items():
        assert (copies[name].shape, copies[name].dtype) == (part.shape, part.dtype)
        assert copies[name].untyped_storage().nbytes() == part.nbytes
