"""Spans of a pool of token ids, each packed into one int64: where its ids begin, and how many there are.

A pool is one long array of ids; the ids of a segment of text lie side by side in it. A span is

    first * 2**32 + count        # the ids are pool[first : first + count]

so that a hash table can hold it as one number. No span of a segment is 0: each has at least one id.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[Any]
Spans = npt.NDArray[np.int64]
Int64 = npt.NDArray[np.int64]

FIRST_BITS = 32
"""How far the first place is shifted to the left."""
COUNT_MASK = (1 << FIRST_BITS) - 1


def pack_spans(firsts: Int64, counts: Int64) -> Spans:
    """Return spans [n] of ``counts`` ids each, from the places ``firsts`` on."""
    return (firsts << FIRST_BITS) + counts


def spans_moved(spans: Spans, places: int) -> Spans:
    """Return the same spans after their ids were put into a pool so many ``places`` further on."""
    return spans + (places << FIRST_BITS)


def read_spans(pool: Ids, spans: Spans) -> tuple[Ids, Int64]:
    """Return the ids of ``spans`` [n] end to end, and the number of ids of each [n].

    For example two spans, of three ids from place 4 on and of two from place 1 on::

        place in pool        0   1   2   3   4   5   6
        pool                 .  21  22   .  11  12  13

        first                4           1
        count                3           2
        ends                 3           5              where each span's ids end in the result
        shifts               4          -2              first - (end - count): from result to pool
        shifts, repeated     4   4   4  -2  -2
        places in result     0   1   2   3   4
        sum: places in pool  4   5   6   1   2
        result              11  12  13  21  22
    """
    counts = spans & COUNT_MASK
    ends = np.cumsum(counts)
    shifts = spans >> FIRST_BITS
    shifts += counts
    shifts -= ends
    places = np.repeat(shifts, counts)
    places += np.arange(len(places))
    return pool.take(places), counts
