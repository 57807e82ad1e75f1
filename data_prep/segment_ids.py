"""Segments of text to token ids: those seen before are looked up, for a megabyte of text at once."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.cut_rules import SPACE, SPACE_SYMBOL, CutRules
from data_prep.shared_segments import NOTHING, SharedSegments
from data_prep.tokenizer import Tokenizer

LONGEST_KEY = 15
"""Bytes of a segment that fit the table's keys; the sixteenth byte is the segment's length."""
LONGEST_REMEMBERED = 64
SLOTS = 1 << 20
MOST_ENTRIES = 600_000
MOST_LONG_ENTRIES = 100_000
MOST_POOLED = 6_000_000
COUNT = (1 << 32) - 1

Ids = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Uint64 = npt.NDArray[np.uint64]


class SegmentIds:
    """Segment to token ids: an open-addressing hash table, all of whose operations are on whole arrays.

    A key is the segment's bytes and its length, in two 64-bit numbers. A value says where in a pool of ids the
    segment's are, and how many: place * 2**32 + count. Segments too long for a key are looked up in a dictionary. When
    there are too many, all are forgotten.
    """

    def __init__(self, tokenizer: Tokenizer, rules: CutRules, dtype: np.dtype[Any]) -> None:
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._space_id = tokenizer.piece_id(SPACE_SYMBOL)
        self._tokens_alone = np.zeros(256, np.int64)
        for character in np.flatnonzero(rules.plain).tolist():
            self._tokens_alone[character] = len(tokenizer.encode(chr(character)))
        self._tokens_alone[SPACE] = 1
        ones = (1 << 64) - 1
        used = range(LONGEST_KEY + 1)
        self._low_bytes = np.array([*(ones >> 8 * max(0, 8 - n) if n else 0 for n in used), 0], np.uint64)
        self._high_bytes = np.array([*(ones >> 8 * (16 - n) if n > 8 else 0 for n in used), 0], np.uint64)
        self._length_byte = np.array([*(n << 56 for n in used), 0], np.uint64)
        self._shared: SharedSegments | None = None
        self._used_slots = 0

    def share(self) -> None:
        """Let processes that are forked from now on tell each other what they learn."""
        self._shared = SharedSegments(self._dtype)

    def _clear(self) -> None:
        """Begin with an empty table: one of this process's own, whose pages it need not copy from the parent's."""
        self._table = np.zeros((SLOTS, 4), np.uint64)  # key, value, and who claims the slot: one cache line
        self._used_slots = 0
        self._taken_over = NOTHING
        self._long: dict[bytes, int] = {}
        self._pool = np.zeros(1 << 16, self._dtype)
        self._pool[0] = self._space_id
        self._pooled = 1
        # A space that is cut off from what follows, which no text for SentencePiece could show on its own.
        self._insert(np.array([SPACE], np.uint64), np.array([1 << 56], np.uint64), np.array([1]))

    def ids_of(self, text: bytes, starts: Int64, lengths: Int64) -> tuple[Ids, Int64]:
        """Token ids of segments end to end, and how many each has."""
        if self._is_full_or_new():
            self._clear()
        self._take_over()
        low, high = self._keys(text, starts, lengths)
        values = self._find(low, high)
        missing = np.flatnonzero(values < 0)
        if len(missing):
            is_short = high[missing] != 0
            short, long = missing[is_short], missing[~is_short]
            values[short] = self._learn(text, starts[short], lengths[short], low[short], high[short])
            values[long] = self._find_long(text, starts[long], lengths[long])
        counts = values & COUNT
        values >>= 32
        values += counts
        values -= np.cumsum(counts)
        places = np.repeat(values, counts)
        places += np.arange(len(places))
        return self._pool.take(places), counts

    def _is_full_or_new(self) -> bool:
        if self._used_slots == 0:
            return True
        return self._used_slots > MOST_ENTRIES or len(self._long) > MOST_LONG_ENTRIES or self._pooled > MOST_POOLED

    def _keys(self, text: bytes, starts: Int64, lengths: Int64) -> tuple[Uint64, Uint64]:
        """The two numbers of each key; zeros for segments that do not fit."""
        padded = text + bytes(16)
        low, high = (  # an unaligned number at every byte of the text
            np.ndarray((len(text) + 1,), "<u8", padded, offset, (1,)).take(starts) for offset in (0, 8)
        )
        lengths = np.minimum(lengths, LONGEST_KEY + 1)
        low &= self._low_bytes.take(lengths)
        high &= self._high_bytes.take(lengths)
        high |= self._length_byte.take(lengths)
        return low, high

    def _find(self, low: Uint64, high: Uint64) -> Int64:
        """The value of each key, -1 where there is none."""
        slots = _first_slots(low, high)
        rows = self._table.take(slots, axis=0)
        values = rows[:, 2].astype(np.int64)
        others = np.flatnonzero((rows[:, 0] != low) | (rows[:, 1] != high))
        values[others] = -1
        others = others[rows[others, 1] != 0]
        slots = slots[others]
        while len(others):
            slots = (slots + 1) & (SLOTS - 1)
            rows = self._table.take(slots, axis=0)
            hit = (rows[:, 0] == low[others]) & (rows[:, 1] == high[others])
            values[others[hit]] = rows[hit, 2]
            goes_on = ~hit & (rows[:, 1] != 0)
            others, slots = others[goes_on], slots[goes_on]
        values[high == 0] = -1
        return values

    def _insert(self, low: Uint64, high: Uint64, values: Int64) -> None:
        """Put new keys, each once, into free slots."""
        slots = _first_slots(low, high)
        waiting = np.arange(len(slots))
        while len(waiting):
            candidates = waiting[self._table[slots[waiting], 1] == 0]
            self._table[slots[candidates], 3] = candidates  # of several for one slot, one stays
            placed = candidates[self._table[slots[candidates], 3] == candidates]
            for column, numbers in enumerate((low, high, values)):
                self._table[slots[placed], column] = numbers[placed]
            waiting = np.setdiff1d(waiting, placed, assume_unique=True)
            slots[waiting] = (slots[waiting] + 1) & (SLOTS - 1)
        self._used_slots += len(values)

    def _take_over(self) -> None:
        """Put what other processes have learned into the table."""
        if self._shared is None:
            return
        rows, ids, self._taken_over, first_id = *self._shared.since(self._taken_over), self._taken_over[1]
        rows = rows[self._find(rows[:, 0], rows[:, 1]) < 0]
        self._insert(rows[:, 0], rows[:, 1], rows[:, 2].astype(np.int64) + (self._pooled - first_id << 32))
        self._add_to_pool(ids)

    def _learn(self, text: bytes, starts: Int64, lengths: Int64, low: Uint64, high: Uint64) -> Int64:
        """Values of segments that are not in the table, some of them several times; puts them there."""
        order = np.lexsort((low, high))
        low_sorted, high_sorted = low[order], high[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (low_sorted[1:] != low_sorted[:-1]) | (high_sorted[1:] != high_sorted[:-1])
        first = order[is_new]
        pooled = self._pooled
        new = self._encode(text, starts[first], lengths[first])
        self._insert(low[first], high[first], new)
        if self._shared is not None:
            self._shared.add(low[first], high[first], new - (pooled << 32), self._pool[pooled : self._pooled])
        values = np.empty(len(order), np.int64)
        values[order] = new[np.cumsum(is_new) - 1]
        return values

    def _find_long(self, text: bytes, starts: Int64, lengths: Int64) -> list[int]:
        """Values of segments that do not fit a key, made where needed."""
        segments = [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        new = {segment: number for number, segment in enumerate(segments) if segment not in self._long}
        numbers = np.fromiter(new.values(), np.int64, len(new))
        made = dict(zip(new, self._encode(text, starts[numbers], lengths[numbers]).tolist(), strict=True))
        values = [made[segment] if segment in made else self._long[segment] for segment in segments]
        self._long.update({segment: value for segment, value in made.items() if len(segment) <= LONGEST_REMEMBERED})
        return values

    def _encode(self, text: bytes, starts: Int64, lengths: Int64) -> Int64:
        """Values of segments, encoded by SentencePiece.

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
        places = self._pooled + np.cumsum(counts) - counts + skipped
        self._add_to_pool(ids)
        values: Int64 = (places << 32) + counts - skipped
        return values

    def _add_to_pool(self, ids: Ids) -> None:
        self._pool = _grown(self._pool, self._pooled + len(ids))
        self._pool[self._pooled : self._pooled + len(ids)] = ids
        self._pooled += len(ids)


def _first_slots(low: Uint64, high: Uint64) -> Int64:
    """Where the search for a key begins: the upper bits of a multiplicative hash."""
    mixed = low * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= high * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed >>= np.uint64(65 - SLOTS.bit_length())
    return mixed.view(np.int64)


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array, or a copy of at least ``size`` items with room to spare."""
    if size <= len(array):
        return array
    grown = np.zeros(size + size // 2, array.dtype)
    grown[: len(array)] = array
    return grown
