"""A hash table of text segments, whose operations all work on whole arrays."""

import numpy as np
import numpy.typing as npt

SLOTS = 1 << 20
ROW = 4
"""A row is a key (two numbers), its value, and the number of the key that has taken the row: half a cache line."""

Int64 = npt.NDArray[np.int64]
Uint64 = npt.NDArray[np.uint64]


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
        others = np.flatnonzero((rows[:, 0] != low) | (rows[:, 1] != high))
        values[others] = 0
        others = others[rows[others, 1] != 0]
        slots = slots[others]
        while len(others):
            slots = (slots + 1) & (SLOTS - 1)
            rows = self._rows.take(slots, axis=0)
            hit = (rows[:, 0] == low[others]) & (rows[:, 1] == high[others])
            values[others[hit]] = rows[hit, 2]
            goes_on = ~hit & (rows[:, 1] != 0)
            others, slots = others[goes_on], slots[goes_on]
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
