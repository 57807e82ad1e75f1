"""Segments that were seen before, and tables that are full."""

import numpy as np
import pytest

from data_prep.tokenizing import segment_ids
from data_prep.tokenizing.tokenizer import Tokenizer
from tests.data_prep.english_text import LINES
from tests.data_prep.models import TEXTS, Models, assert_same


def test_full_tables(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments for which the kept table has no room are recent ones, which are forgotten when they are too many.

    One text may hold more segments than a table has slots.
    """
    monkeypatch.setattr(segment_ids, "SLOTS", 64)
    monkeypatch.setattr(segment_ids, "MOST_KEPT_SEGMENTS", 40)
    monkeypatch.setattr(segment_ids, "MOST_RECENT_SEGMENTS", 50)
    monkeypatch.setattr(segment_ids, "MOST_LONG_SEGMENTS", 3)
    tokenizer = models.fast("reference")
    assert_same(tokenizer, LINES)
    for text in [*LINES[::3], *TEXTS]:
        assert_same(tokenizer, [text])
    assert_same(tokenizer, LINES)


@pytest.mark.parametrize("kept_ids", [50, 4_000_000])
def test_a_segment_is_encoded_once(models: Models, monkeypatch: pytest.MonkeyPatch, kept_ids: int) -> None:
    """Whether it is kept or recent."""
    monkeypatch.setattr(segment_ids, "MOST_KEPT_IDS", kept_ids)
    tokenizer = models.fast("reference")
    assert_same(tokenizer, [*TEXTS, *LINES])
    encoded: list[bytes] = []
    assert isinstance(tokenizer.plain, Tokenizer)
    encode = tokenizer.plain.encode_batch

    def encode_and_note(texts: list[bytes]) -> list[list[int]]:
        encoded.extend(texts)
        return encode(texts)

    monkeypatch.setattr(tokenizer.plain, "encode_batch", encode_and_note)
    assert_same(tokenizer, [*LINES, *TEXTS])
    assert not [text for text in encoded if len(text) <= segment_ids.LONGEST_KEY]


def test_spans_are_read_as_the_docstring_says() -> None:
    pool = np.array([0, 21, 22, 0, 11, 12, 13], np.uint16)
    spans = np.array([4 * 2**32 + 3, 2**32 + 2])
    ids, counts = segment_ids.read_spans(pool, spans)
    assert (ids.tolist(), counts.tolist(), ids.dtype.name) == ([11, 12, 13, 21, 22], [3, 2], "uint16")
    assert spans.tolist() == [4 * 2**32 + 3, 2**32 + 2]  # reading leaves them as they are


def test_keys_are_found_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table that is nearly full, where most keys are not at their first slot."""
    monkeypatch.setattr(segment_ids, "SLOTS", 256)
    table = segment_ids.SegmentTable()
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
