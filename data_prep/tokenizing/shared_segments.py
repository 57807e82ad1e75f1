"""The segments that all workers look up and add to: what one has SentencePiece encode, none of the others has to.

The ids of a segment are the same whoever encodes it, so who learned what, and when, does not show in the output.
"""

import mmap
import multiprocessing
from typing import Any

import numpy as np

from data_prep.tokenizing.packed_spans import Ids, Spans, spans_moved, without_spans_from
from data_prep.tokenizing.segment_table import TABLE_BYTES, SegmentTable, Uint64

MOST_SEGMENTS = 600_000
"""The first ones are the most frequent; what is learned later, each worker keeps to itself."""
MOST_IDS = 4_000_000
COUNTS_BYTES = 64


class SharedSegments:
    """A table and its pool of ids, common to this process and those forked from it. Nothing is ever removed.

    A key's value is the span of the pool where the segment's ids are (``packed_spans``).
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

    def find(self, low: Uint64, high: Uint64, seen: int) -> Spans:
        """The spans of keys whose ids are within the first ``seen`` of the pool; 0 for others.

        Of a segment that is being added meanwhile the span may be there already, but not its ids.
        """
        return without_spans_from(self._table.find(low, high), seen)

    def add(self, low: Uint64, high: Uint64, spans: Spans, ids: Ids) -> Spans | None:
        """Put segments there whose ``spans`` count places from the first of ``ids``; None if there is no room.

        Returns their spans in the common pool. Some may be those that another process has added meanwhile.
        """
        with self._lock:
            segments, pooled = self._counts.tolist()
            if segments + len(low) > MOST_SEGMENTS or pooled + len(ids) > MOST_IDS:
                return None
            found = self._table.find(low, high)
            new = found == 0
            found[new] = spans_moved(spans[new], pooled)
            self._ids[pooled : pooled + len(ids)] = ids
            self._table.insert(low[new], high[new], found[new])
            self._counts[:] = segments + np.count_nonzero(new), pooled + len(ids)
        return found
