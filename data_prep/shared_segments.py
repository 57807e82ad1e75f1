"""What one worker has learned, for the others: else each of them has SentencePiece encode the whole vocabulary anew.

The ids of a segment are the same whoever encodes it, so who learned what, and when, does not show in the output.
"""

import mmap
import multiprocessing
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_SEGMENTS = 300_000
"""The first ones are the most frequent; what is learned later, each worker keeps to itself. Half of what a worker's
table holds: when that is full, it starts again from here."""
MOST_IDS = 2_000_000

Ids = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Uint64 = npt.NDArray[np.uint64]
Seen = tuple[int, int]
"""How many segments, and ids, a worker has taken over."""
NOTHING: Seen = (0, 0)


class SharedSegments:
    """A list that processes forked after it was made only append to. It takes up to 16 MB, shared by all."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._lock = multiprocessing.get_context("fork").Lock()
        memory = mmap.mmap(-1, 16 + MOST_SEGMENTS * 24 + MOST_IDS * dtype.itemsize)
        self._counts = np.ndarray(2, np.int64, memory)
        self._rows = np.ndarray((MOST_SEGMENTS, 3), np.uint64, memory, 16)
        self._ids = np.ndarray(MOST_IDS, dtype, memory, 16 + self._rows.nbytes)

    def add(self, low: Uint64, high: Uint64, values: Int64, ids: Ids) -> None:
        """Append segments: keys, values (place in ``ids`` * 2**32 + count) and their ids; nothing once it is full."""
        with self._lock:
            rows, pooled = self._counts.tolist()
            if rows + len(low) > MOST_SEGMENTS or pooled + len(ids) > MOST_IDS:
                return
            for column, numbers in enumerate((low, high, values + (pooled << 32))):
                self._rows[rows : rows + len(low), column] = numbers
            self._ids[pooled : pooled + len(ids)] = ids
            self._counts[:] = rows + len(low), pooled + len(ids)

    def since(self, seen: Seen) -> tuple[Uint64, Ids, Seen]:
        """What was appended after ``seen``, as rows of key (two numbers) and value, and its ids; and what to pass next
        time. Places in values are counted from the first id of all."""
        with self._lock:
            rows, pooled = self._counts.tolist()
        return self._rows[seen[0] : rows], self._ids[seen[1] : pooled], (rows, pooled)
