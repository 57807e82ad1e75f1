"""Segments that were seen before, here or in another process, and tables that are full."""

import multiprocessing

import pytest

from data_prep.tokenizing import segment_ids, segment_table, shared_segments
from tests.data_prep.english_text import LINES
from tests.data_prep.models import TEXTS, Models, assert_same


@pytest.mark.slow
@pytest.mark.parametrize("shared", [1, 40])
def test_full_tables(models: Models, monkeypatch: pytest.MonkeyPatch, shared: int) -> None:
    """What has no room in the shared table is kept here, and forgotten when that is too much.

    One text may hold more segments than a table has slots.
    """
    monkeypatch.setattr(segment_table, "SLOTS", 64)
    monkeypatch.setattr(shared_segments, "MOST_SEGMENTS", shared)
    monkeypatch.setattr(segment_ids, "MOST_OWN_SEGMENTS", 50)
    monkeypatch.setattr(segment_ids, "MOST_LONG_SEGMENTS", 3)
    tokenizer = models.fast("reference")
    for _ in range(3):
        assert_same(tokenizer, LINES)
        for text in [*LINES, *TEXTS]:
            assert_same(tokenizer, [text])


@pytest.mark.parametrize("room", [None, 40], ids=["room for all", "full"])
def test_what_another_process_has_learned(models: Models, monkeypatch: pytest.MonkeyPatch, room: int | None) -> None:
    """It is not encoded again, if there was room for it, and the ids are the same."""
    if room is not None:
        monkeypatch.setattr(shared_segments, "MOST_SEGMENTS", room)
    tokenizer = models.fast("reference")
    documents = [line.encode() for line in LINES]
    for half in (documents[::2], documents[1::2]):
        process = multiprocessing.get_context("fork").Process(target=tokenizer.encode_documents, args=[half])
        process.start()
        process.join()
        assert process.exitcode == 0
    encoded: list[bytes] = []
    encode = tokenizer.plain.encode_batch

    def encode_and_note(texts: list[bytes]) -> list[list[int]]:
        encoded.extend(texts)
        return encode(texts)

    monkeypatch.setattr(tokenizer.plain, "encode_batch", encode_and_note)
    assert_same(tokenizer, LINES)
    short = [text for text in encoded if len(text) <= segment_ids.LONGEST_KEY]
    assert bool(short) == (room is not None)
    assert_same(tokenizer, [*TEXTS, *LINES])
