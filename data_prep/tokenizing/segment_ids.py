"""Convert segments of text to token ids: known segments are looked up, for a block of text at once.

The ids of all segments lie in one long array, the pool, those of a segment side by side. The place of a segment's ids
is one number, so that a hash table can hold it: a span, first * 2**32 + count, stands for pool[first : first + count].
No span of a segment is 0: each has at least one id.
"""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.tokenizing.cut_rules import SPACE, SPACE_SYMBOL, CutRules
from data_prep.tokenizing.tokenizer import Tokenizer

Ids = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Uint64 = npt.NDArray[np.uint64]
Spans = Int64
FIRST_BITS = 32
"""Bits by which the first place of a span is shifted to the left."""
COUNT_MASK = (1 << FIRST_BITS) - 1

LONGEST_KEY = 15
"""Most bytes of a segment that fit the table's keys; the sixteenth byte is the segment's length."""
LONGEST_REMEMBERED = 64
"""Most bytes of a remembered segment that is too long for a key."""
MOST_KEPT_SEGMENTS, MOST_KEPT_IDS = 600_000, 4_000_000
"""The first segments are the most frequent ones: they are never forgotten."""
MOST_RECENT_SEGMENTS, MOST_LONG_SEGMENTS, MOST_RECENT_IDS = 600_000, 100_000, 6_000_000
"""Limits of recent segments; if one is exceeded, all segments after the kept ones are forgotten."""
SLOTS = 1 << 20
ROW = 4
"""A row is a key (two numbers), its value, and the number of the key that has taken the row: half a cache line."""


class SegmentIds:
    """Map segments to token ids, each encoded by SentencePiece once.

    A key is the segment's bytes and its length, in two 64-bit numbers; its value is the segment's span. Segments too
    long for a key are looked up in a dictionary. The pool begins with the ids of the segments that are kept; recent
    ones and long ones follow, until they are forgotten.
    """

    def __init__(self, tokenizer: Tokenizer, rules: CutRules, dtype: np.dtype[Any]) -> None:
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._tokens_alone = np.zeros(256, np.int64)
        for character in np.flatnonzero(rules.plain).tolist():
            self._tokens_alone[character] = len(tokenizer.encode(chr(character)))
        self._tokens_alone[SPACE] = 1
        all_bits = (1 << 64) - 1
        lengths = range(LONGEST_KEY + 1)
        self._low_bytes = np.array([*(all_bits >> 8 * max(0, 8 - n) if n else 0 for n in lengths), 0], np.uint64)
        self._high_bytes = np.array([*(all_bits >> 8 * (16 - n) if n > 8 else 0 for n in lengths), 0], np.uint64)
        self._length_byte = np.array([*(n << 56 for n in lengths), 0], np.uint64)
        self._pool = np.zeros(MOST_KEPT_IDS, dtype)
        self._frequent = SegmentTable()
        # A space that is cut off from its word: no text for SentencePiece holds it on its own.
        self._pool[0] = tokenizer.piece_id(SPACE_SYMBOL)
        self._frequent.insert(np.array([SPACE], np.uint64), np.array([1 << 56], np.uint64), np.array([1]))
        self._frequent_ids = 1
        self._forget_recent()

    def _forget_recent(self) -> None:
        self._recent: SegmentTable | None = None
        self._long: dict[bytes, int] = {}
        self._pool_end = MOST_KEPT_IDS

    def ids_of(self, text: bytes, starts: Int64, lengths: Int64) -> tuple[Ids, Int64]:
        """Return the token ids of segments end to end, and the number of ids of each."""
        if self._recent_are_too_many():
            self._forget_recent()
        low, high = self._keys(text, starts, lengths)
        spans = self._find(low, high)
        unknown = np.flatnonzero(spans == 0)
        if len(unknown):
            fits_a_key = high[unknown] != 0
            short, long = unknown[fits_a_key], unknown[~fits_a_key]
            spans[short] = self._learn(text, starts[short], lengths[short], low[short], high[short])
            spans[long] = self._find_long(text, starts[long], lengths[long])
        return read_spans(self._pool, spans)

    def _recent_are_too_many(self) -> bool:
        return (
            (self._recent is not None and self._recent.count > MOST_RECENT_SEGMENTS)
            or len(self._long) > MOST_LONG_SEGMENTS
            or self._pool_end > MOST_KEPT_IDS + MOST_RECENT_IDS
        )

    def _keys(self, text: bytes, starts: Int64, lengths: Int64) -> tuple[Uint64, Uint64]:
        """Return the two numbers of each key; zeros for segments that do not fit a key."""
        # The sixteen bytes from every byte of the text on; taking some of two rows of numbers would copy all of them.
        sixteen = np.ndarray((len(text) + 1,), "V16", text + bytes(16), 0, (1,))
        numbers = sixteen[starts].view("<u8").reshape(-1, 2)
        lengths = np.minimum(lengths, LONGEST_KEY + 1)
        low = numbers[:, 0] & self._low_bytes.take(lengths)
        high = numbers[:, 1] & self._high_bytes.take(lengths)
        high |= self._length_byte.take(lengths)
        return low, high

    def _find(self, low: Uint64, high: Uint64) -> Spans:
        """Return the span of each key, or 0 if there is none."""
        spans = self._frequent.find(low, high)
        if self._recent is not None:
            unknown = np.flatnonzero(spans == 0)
            spans[unknown] = self._recent.find(low[unknown], high[unknown])
        return spans

    def _learn(self, text: bytes, starts: Int64, lengths: Int64, low: Uint64, high: Uint64) -> Spans:
        """Encode and remember segments that are in no table, some of them several times; return their spans."""
        order = np.lexsort((low, high))
        low_sorted, high_sorted = low[order], high[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (low_sorted[1:] != low_sorted[:-1]) | (high_sorted[1:] != high_sorted[:-1])
        first = order[is_new]
        low, high = low[first], high[first]
        new_spans = self._remember(low, high, *self._encode(text, starts[first], lengths[first]))
        spans = np.empty(len(order), np.int64)
        spans[order] = new_spans[np.cumsum(is_new) - 1]
        return spans

    def _remember(self, low: Uint64, high: Uint64, spans: Spans, ids: Ids) -> Spans:
        """Put segments whose ``spans`` count from the first of ``ids`` into a table; return their spans in the pool."""
        if self._frequent.count + len(spans) <= MOST_KEPT_SEGMENTS and self._frequent_ids + len(ids) <= MOST_KEPT_IDS:
            placed = spans + (self._frequent_ids << FIRST_BITS)
            self._pool[self._frequent_ids : self._frequent_ids + len(ids)] = ids
            self._frequent_ids += len(ids)
            self._frequent.insert(low, high, placed)
            return placed
        placed = self._add_to_pool(spans, ids)
        self._recent = self._recent or SegmentTable()
        if self._recent.count + len(spans) <= MOST_RECENT_SEGMENTS:
            self._recent.insert(low, high, placed)
        else:
            self._recent.count = MOST_RECENT_SEGMENTS + 1  # all are forgotten before the next text
        return placed

    def _find_long(self, text: bytes, starts: Int64, lengths: Int64) -> Spans:
        """Return the spans of segments that do not fit a key, after encoding those that are not remembered."""
        segments = _slices(text, starts, starts + lengths)
        spans = np.fromiter((self._long.get(segment, 0) for segment in segments), np.int64, len(segments))
        unknown = np.flatnonzero(spans == 0)
        if len(unknown):
            spans[unknown] = self._add_to_pool(*self._encode(text, starts[unknown], lengths[unknown]))
            for number in unknown.tolist():
                if len(segments[number]) <= LONGEST_REMEMBERED:
                    self._long[segments[number]] = int(spans[number])
        return spans

    def _encode(self, text: bytes, starts: Int64, lengths: Int64) -> tuple[Spans, Ids]:
        """Encode segments with SentencePiece; return their spans, counted from the first of their ids, and these ids.

        A word is encoded as it is. A segment within a word is encoded together with the character before it, which may
        be cut off: the ids of that character alone are left out.
        """
        characters = np.frombuffer(text, np.uint8)
        within = characters[starts] != SPACE
        encoded = self._tokenizer.encode_batch(_slices(text, starts - within, starts + lengths))
        counts = np.fromiter(map(len, encoded), np.int64, len(encoded))
        skipped = self._tokens_alone[characters[starts - 1]] * within
        ids = np.fromiter(itertools.chain.from_iterable(encoded), self._dtype, int(counts.sum()))
        firsts = np.cumsum(counts) - counts + skipped
        return (firsts << FIRST_BITS) + (counts - skipped), ids

    def _add_to_pool(self, spans: Spans, ids: Ids) -> Spans:
        """Append ids after the kept ones; return their spans there."""
        placed = spans + (self._pool_end << FIRST_BITS)
        new_end = self._pool_end + len(ids)
        if new_end > len(self._pool):
            grown = np.zeros(new_end + new_end // 2, self._dtype)
            grown[: len(self._pool)] = self._pool
            self._pool = grown
        self._pool[self._pool_end : new_end] = ids
        self._pool_end = new_end
        return placed


def _slices(text: bytes, starts: Int64, ends: Int64) -> list[bytes]:
    # numbers of Python's own: slicing by NumPy's takes three times as long
    return [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def read_spans(pool: Ids, spans: Spans) -> tuple[Ids, Int64]:
    """Return the ids of ``spans`` [n] end to end, and the number of ids of each [n].

    For example two spans, of three ids from position 4 on and of two from position 1 on::

        position in pool     0   1   2   3   4   5   6
        pool                 .  21  22   .  11  12  13

        first                4           1
        count                3           2
        ends                 3           5              where each span's ids end in the result
        shifts               4          -2              first - (end - count): from result to pool
        shifts, repeated     4   4   4  -2  -2
        positions in result  0   1   2   3   4
        sum: pool positions  4   5   6   1   2
        result              11  12  13  21  22
    """
    counts = spans & COUNT_MASK
    ends = np.cumsum(counts)
    shifts = spans >> FIRST_BITS
    shifts += counts
    shifts -= ends
    positions = np.repeat(shifts, counts)
    positions += np.arange(len(positions))
    return pool.take(positions), counts


class SegmentTable:
    """A hash table by open addressing from keys of two numbers, the second not 0, to values other than 0.

    Nothing is ever removed.
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of keys; more than two thirds of SLOTS would make searches long."""
        self._rows = np.zeros((SLOTS, ROW), np.uint64)

    def find(self, low: Uint64, high: Uint64) -> Int64:
        """Return the value of each key, or 0 if the key is missing."""
        slots = _first_slots(low, high)
        rows = self._rows.take(slots, axis=0)
        values = rows[:, 2].astype(np.int64)
        unmatched = np.flatnonzero((rows[:, 0] != low) | (rows[:, 1] != high))
        values[unmatched] = 0
        unmatched = unmatched[rows[unmatched, 1] != 0]
        slots = slots[unmatched]
        while len(unmatched):
            slots = (slots + 1) & (SLOTS - 1)
            rows = self._rows.take(slots, axis=0)
            hit = (rows[:, 0] == low[unmatched]) & (rows[:, 1] == high[unmatched])
            values[unmatched[hit]] = rows[hit, 2]
            goes_on = ~hit & (rows[:, 1] != 0)
            unmatched, slots = unmatched[goes_on], slots[goes_on]
        return values

    def insert(self, low: Uint64, high: Uint64, values: Int64) -> None:
        """Insert new keys, each once, into free slots."""
        self.count += len(values)
        slots = _first_slots(low, high)
        waiting = np.arange(len(slots))
        while len(waiting):
            candidates = waiting[self._rows[slots[waiting], 1] == 0]
            self._rows[slots[candidates], 3] = candidates  # of several for one slot, one stays
            placed = candidates[self._rows[slots[candidates], 3] == candidates]
            for column, numbers in enumerate((low, high, values)):
                self._rows[slots[placed], column] = numbers[placed]
            waiting = np.setdiff1d(waiting, placed, assume_unique=True)
            slots[waiting] = (slots[waiting] + 1) & (SLOTS - 1)


def _first_slots(low: Uint64, high: Uint64) -> Int64:
    """Return the slot at which the search for each key begins: the upper bits of a multiplicative hash."""
    mixed = low * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= high * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed >>= np.uint64(65 - SLOTS.bit_length())
    return mixed.view(np.int64)
