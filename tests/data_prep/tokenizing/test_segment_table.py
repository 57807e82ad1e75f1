"""The hash table: each key is found under its own bytes."""

import numpy as np
import pytest

from data_prep.tokenizing import segment_table
from tests.data_prep.english_text import LINES
from tests.data_prep.models import TEXTS, Models, assert_same


def test_keys_that_share_a_slot(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every key starting at the same slot, each is still found under its own bytes."""
    monkeypatch.setattr(segment_table, "_first_slots", lambda low, _: np.full(len(low), (1 << 20) - 5))
    tokenizer = models.fast("reference")
    for _ in range(2):
        assert_same(tokenizer, [*LINES[:20], *TEXTS])


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
