"""The segments that all workers look up and add to: what one has SentencePiece encode, none of the others has to.

The ids of a segment are the same whoever encodes it, so who learned what, and when, does not show in the output.
"""

import mmap
import multiprocessing
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.tokenizing.segment_table import TABLE_BYTES, Int64, SegmentTable, Uint64

MOST_SEGMENTS = 600_000
"""The first ones are the most frequent; what is learned later, each worker keeps to itself."""
MOST_IDS = 4_000_000
COUNTS_BYTES = 64

Ids = npt.NDArray[Any]


class SharedSegments:
    """A table and its pool of ids, common to this process and those forked from it. Nothing is ever removed.

    A value says where in the pool the segment's ids are, and how many: place * 2**32 + count.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._lock = multiprocessing.get_context("fork").Lock()
        memory = memoryview(mmap.mmap(-1, COUNTS_BYTES + TABLE_BYTES + MOST_IDS * dtype.itemsize))
        self._counts = np.ndarray(2, np.int64, memory)  # segments and ids
        self._table = SegmentTable(memory[COUNTS_BYTES:])
        self._ids = np.ndarray(MOST_IDS, dtype, memory, COUNTS_BYTES + TABLE_BYTES)

    def ids_since(self, seen: int) -> Ids:
        """The pool from place ``seen`` on."""
        with self._lock:
            return self._ids[seen : int(self._counts[1])]

    def find(self, low: Uint64, high: Uint64, seen: int) -> Int64:
        """The values of keys whose ids are within the first ``seen`` of the pool; 0 for others.

        Of a segment that is being added meanwhile the value may be there already, but not its ids.
        """
        values = self._table.find(low, high)
        unseen = seen << 32
        if values.max(initial=0) >= unseen:
            values[values >= unseen] = 0
        return values

    def add(self, low: Uint64, high: Uint64, values: Int64, ids: Ids) -> Int64 | None:
        """Put segments there whose ``values`` count places from the first of ``ids``; None if there is no room.

        Returns their values in the common pool. Some may be those that another process has added meanwhile.
        """
        with self._lock:
            segments, pooled = self._counts.tolist()
            if segments + len(low) > MOST_SEGMENTS or pooled + len(ids) > MOST_IDS:
                return None
            found = self._table.find(low, high)
            new = found == 0
            found[new] = values[new] + (pooled << 32)
            self._ids[pooled : pooled + len(ids)] = ids
            self._table.insert(low[new], high[new], found[new])
            self._counts[:] = segments + np.count_nonzero(new), pooled + len(ids)
        return found
