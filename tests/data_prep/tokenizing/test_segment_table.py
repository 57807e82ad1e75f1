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
