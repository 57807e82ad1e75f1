"""Segments of text to token ids: those seen before are looked up, for a block of text at once."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.tokenizing.cut_rules import SPACE, SPACE_SYMBOL, CutRules
from data_prep.tokenizing.packed_spans import Ids, Int64, Spans, pack_spans, read_spans, spans_moved
from data_prep.tokenizing.segment_table import SegmentTable, Uint64
from data_prep.tokenizing.shared_segments import MOST_IDS, SharedSegments
from data_prep.tokenizing.tokenizer import Tokenizer

LONGEST_KEY = 15
"""Bytes of a segment that fit the table's keys; the sixteenth byte is the segment's length."""
LONGEST_REMEMBERED = 64
MOST_OWN_SEGMENTS = 600_000
MOST_LONG_SEGMENTS = 100_000
MOST_OWN_IDS = 6_000_000


class SegmentIds:
    """Segment to token ids, by a table that all workers share and, when that is full, one of this process's own.

    A key is the segment's bytes and its length, in two 64-bit numbers. Its value is the span of a pool of ids where the
    segment's are (``packed_spans``). The pool begins with a copy of the shared one. Segments too long for a key are
    looked up in a dictionary. When this process's own are too many, they are forgotten.
    """

    def __init__(self, tokenizer: Tokenizer, rules: CutRules, dtype: np.dtype[Any]) -> None:
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._tokens_alone = np.zeros(256, np.int64)
        for character in np.flatnonzero(rules.plain).tolist():
            self._tokens_alone[character] = len(tokenizer.encode(chr(character)))
        self._tokens_alone[SPACE] = 1
        ones = (1 << 64) - 1
        used = range(LONGEST_KEY + 1)
        self._low_bytes = np.array([*(ones >> 8 * max(0, 8 - n) if n else 0 for n in used), 0], np.uint64)
        self._high_bytes = np.array([*(ones >> 8 * (16 - n) if n > 8 else 0 for n in used), 0], np.uint64)
        self._length_byte = np.array([*(n << 56 for n in used), 0], np.uint64)
        self._shared = SharedSegments(dtype)
        # A space that is cut off from what follows, which no text for SentencePiece could show on its own.
        space = np.array([SPACE], np.uint64), np.array([1 << 56], np.uint64), np.array([1])
        self._shared.add(*space, np.array([tokenizer.piece_id(SPACE_SYMBOL)], dtype))
        self._seen = 0
        self._pool = np.zeros(MOST_IDS, dtype)
        self._forget_own()

    def _forget_own(self) -> None:
        self._own: SegmentTable | None = None
        self._own_segments = 0
        self._long: dict[bytes, int] = {}
        self._pooled = MOST_IDS

    def ids_of(self, text: bytes, starts: Int64, lengths: Int64) -> tuple[Ids, Int64]:
        """Token ids of segments end to end, and how many each has."""
        if self._own_are_too_many():
            self._forget_own()
        self._copy_shared_ids()
        low, high = self._keys(text, starts, lengths)
        spans = self._find(low, high)
        missing = np.flatnonzero(spans == 0)
        if len(missing):
            fits_a_key = high[missing] != 0
            short, long = missing[fits_a_key], missing[~fits_a_key]
            spans[short] = self._learn(text, starts[short], lengths[short], low[short], high[short])
            spans[long] = self._find_long(text, starts[long], lengths[long])
        return read_spans(self._pool, spans)

    def _own_are_too_many(self) -> bool:
        return (
            self._own_segments > MOST_OWN_SEGMENTS
            or len(self._long) > MOST_LONG_SEGMENTS
            or self._pooled > MOST_IDS + MOST_OWN_IDS
        )

    def _copy_shared_ids(self) -> None:
        new = self._shared.ids_since(self._seen)
        self._pool[self._seen : self._seen + len(new)] = new
        self._seen += len(new)

    def _keys(self, text: bytes, starts: Int64, lengths: Int64) -> tuple[Uint64, Uint64]:
        """The two numbers of each key; zeros for segments that do not fit."""
        # The sixteen bytes from every byte of the text on; taking some of two rows of numbers would copy all of them.
        sixteen = np.ndarray((len(text) + 1,), "V16", text + bytes(16), 0, (1,))
        numbers = sixteen[starts].view("<u8").reshape(-1, 2)
        lengths = np.minimum(lengths, LONGEST_KEY + 1)
        low = numbers[:, 0] & self._low_bytes.take(lengths)
        high = numbers[:, 1] & self._high_bytes.take(lengths)
        high |= self._length_byte.take(lengths)
        return low, high

    def _find(self, low: Uint64, high: Uint64) -> Spans:
        """The span of each key, 0 where there is none."""
        spans = self._shared.find(low, high, self._seen)
        if self._own is not None:
            missing = np.flatnonzero(spans == 0)
            spans[missing] = self._own.find(low[missing], high[missing])
        return spans

    def _learn(self, text: bytes, starts: Int64, lengths: Int64, low: Uint64, high: Uint64) -> Spans:
        """Spans of segments that are in no table, some of them several times; puts them into one."""
        order = np.lexsort((low, high))
        low_sorted, high_sorted = low[order], high[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (low_sorted[1:] != low_sorted[:-1]) | (high_sorted[1:] != high_sorted[:-1])
        first = order[is_new]
        low, high = low[first], high[first]
        encoded, ids = self._encode(text, starts[first], lengths[first])
        new = self._shared.add(low, high, encoded, ids)
        if new is None:
            new = self._add_to_pool(encoded, ids)
            self._own_segments += len(new)
            if self._own_segments <= MOST_OWN_SEGMENTS:  # else all are forgotten before the next text
                self._own = self._own or SegmentTable()
                self._own.insert(low, high, new)
        else:
            self._copy_shared_ids()
        spans = np.empty(len(order), np.int64)
        spans[order] = new[np.cumsum(is_new) - 1]
        return spans

    def _find_long(self, text: bytes, starts: Int64, lengths: Int64) -> list[int]:
        """Spans of segments that do not fit a key, made where needed."""
        segments = [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        new = {segment: number for number, segment in enumerate(segments) if segment not in self._long}
        numbers = np.fromiter(new.values(), np.int64, len(new))
        made_spans = self._add_to_pool(*self._encode(text, starts[numbers], lengths[numbers]))
        made = dict(zip(new, made_spans.tolist(), strict=True))
        spans = [made[segment] if segment in made else self._long[segment] for segment in segments]
        self._long.update({segment: span for segment, span in made.items() if len(segment) <= LONGEST_REMEMBERED})
        return spans

    def _encode(self, text: bytes, starts: Int64, lengths: Int64) -> tuple[Spans, Ids]:
        """Spans of segments and their ids, encoded by SentencePiece; places count from the first of these ids.

        A word is encoded as it is. A segment within a word is encoded together with the character before it, which
        may be cut off: what the character alone gives is left out.
        """
        characters = np.frombuffer(text, np.uint8)
        within = characters[starts] != SPACE
        encoded = self._tokenizer.encode_batch(
            [text[start:end] for start, end in zip(starts - within, starts + lengths, strict=True)]
        )
        counts = np.fromiter(map(len, encoded), np.int64, len(encoded))
        skipped = self._tokens_alone[characters[starts - 1]] * within
        ids = np.fromiter(itertools.chain.from_iterable(encoded), self._dtype, int(counts.sum()))
        firsts = np.cumsum(counts) - counts + skipped
        return pack_spans(firsts, counts - skipped), ids

    def _add_to_pool(self, spans: Spans, ids: Ids) -> Spans:
        """Append to this process's part of the pool; the spans there."""
        placed = spans_moved(spans, self._pooled)
        self._pool = _grown(self._pool, self._pooled + len(ids))
        self._pool[self._pooled : self._pooled + len(ids)] = ids
        self._pooled += len(ids)
        return placed


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array, or a copy of at least ``size`` items with room to spare."""
    if size <= len(array):
        return array
    grown = np.zeros(size + size // 2, array.dtype)
    grown[: len(array)] = array
    return grown
