"""Where samples start and how they are shuffled, against the reference's walk."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sample_order.sample_index import build_sample_index


def _walk(sizes: list[int], epochs: int, length: int, total: int, extra: int) -> list[tuple[int, int]]:
    """The reference's walk through the documents (item 5 of docs/facts/reference.md b.2), one sample at a time."""
    documents = list(range(len(sizes))) * epochs
    position, offset = 0, 0
    starts = [(0, 0)]
    for _ in range(total):
        remaining = length + extra
        while True:
            here = sizes[documents[position]] - offset
            remaining -= here
            if remaining <= 0:
                offset += remaining + here - extra
                break
            if position + 1 == len(documents):
                offset = sizes[documents[position]] - extra
                break
            position, offset = position + 1, 0
        starts.append((position, offset))
    return starts


@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    length=st.integers(1, 20),
    num_samples=st.integers(-1, 60),
    plus_one=st.booleans(),
)
def test_sample_starts_are_those_of_the_walk(sizes: list[int], length: int, num_samples: int, plus_one: bool) -> None:
    extra = int(plus_one)
    if sum(sizes) <= extra:
        return
    index = build_sample_index(
        np.array(sizes, np.int32), sequence_length=length, num_samples=num_samples, seed=5, plus_one=plus_one
    )
    total = len(index.shuffle_idx)
    expected = _walk(sizes, index.num_epochs, length, total, extra)
    assert [tuple(row) for row in index.sample_idx[:].tolist()] == expected
    assert sorted(index.shuffle_idx[:].tolist()) == list(range(total))
    assert total >= num_samples
    if index.num_epochs > 1:  # one epoch less would not have been enough
        assert ((index.num_epochs - 1) * sum(sizes) - extra) // length < num_samples


def test_epochs_are_shuffled_apart_only_when_the_last_is_needed_in_part() -> None:
    sizes = np.full(10, 10, np.int32)  # 20 samples of 5 tokens per epoch
    for num_samples, separate in ((21, True), (35, True), (36, False), (40, False)):
        index = build_sample_index(sizes, sequence_length=5, num_samples=num_samples, seed=1)
        assert index.num_epochs == 2
        assert (sorted(index.shuffle_idx[:20].tolist()) == list(range(20))) == separate, num_samples
