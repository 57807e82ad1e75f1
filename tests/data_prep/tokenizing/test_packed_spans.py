"""Spans of ids in one number."""

import numpy as np
import pytest

from data_prep.tokenizing.packed_spans import pack_spans, read_spans, spans_moved


def test_the_example_of_the_docstring() -> None:
    pool = np.array([0, 21, 22, 0, 11, 12, 13], np.uint16)
    spans = pack_spans(np.array([4, 1]), np.array([3, 2]))
    assert spans.tolist() == [4 * 2**32 + 3, 2**32 + 2]
    ids, counts = read_spans(pool, spans)
    assert (ids.tolist(), counts.tolist()) == ([11, 12, 13, 21, 22], [3, 2])
    assert ids.dtype == np.uint16
    assert spans.tolist() == [4 * 2**32 + 3, 2**32 + 2]  # reading leaves them as they are


@pytest.mark.parametrize("seed", range(3))
def test_ids_are_read_one_span_after_the_other(seed: int) -> None:
    draw = np.random.default_rng(seed)
    pool = draw.integers(0, 1 << 16, 5000)
    firsts, counts = draw.integers(0, 4000, 700), draw.integers(0, 30, 700)
    ids, found = read_spans(pool, pack_spans(firsts, counts))
    np.testing.assert_array_equal(found, counts)
    expected = [pool[first : first + count] for first, count in zip(firsts, counts, strict=True)]
    np.testing.assert_array_equal(ids, np.concatenate(expected))


def test_no_span_is_no_id() -> None:
    ids, counts = read_spans(np.arange(5), np.empty(0, np.int64))
    assert (len(ids), len(counts)) == (0, 0)


def test_spans_that_are_moved() -> None:
    spans = pack_spans(np.array([0, 7, 8]), np.array([7, 1, 2]))
    assert spans_moved(spans, 100).tolist() == pack_spans(np.array([100, 107, 108]), np.array([7, 1, 2])).tolist()
