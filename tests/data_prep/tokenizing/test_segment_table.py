"""The hash table: each key is found under its own bytes."""

import numpy as np
import pytest

from data_prep.tokenizing import segment_table


def test_keys_are_found_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table that is nearly full, where most keys are not at their first slot."""
    monkeypatch.setattr(segment_table, "SLOTS", 256)
    table = segment_table.SegmentTable()
    draw = np.random.default_rng(0)
    low = draw.integers(0, 10, 400, np.uint64)
    high = draw.permutation(np.arange(1, 401, dtype=np.uint64))
    values = np.arange(1, 401)
    for start in range(0, 250, 50):
        block = slice(start, start + 50)
        table.insert(low[block], high[block], values[block])
        found = table.find(low, high)
        assert found[: block.stop].tolist() == values[: block.stop].tolist()
        assert not found[block.stop :].any()
        assert table.count == block.stop
