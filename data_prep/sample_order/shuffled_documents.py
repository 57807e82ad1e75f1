"""Megatron-Core's order of training windows: documents are shuffled before windows are cut and shuffled.

The documents of all epochs are shuffled together; those of the last epoch are shuffled apart if the request needs less
than 80 % of that epoch. Windows are cut from the shuffled stream, and shuffled. One generator, seeded once, shuffles
the documents first and the windows after them (docs/facts/llama31_8b.md 9.6). The number of epochs follows from the
number of requested samples, so that number decides on the first windows, too.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.sample_order.kept_index import INDEX_VERSION, STAGE, IndexArray, Keep, NewArray, in_memory
from data_prep.sample_order.sample_index import SampleIndex
from data_prep.sample_order.window_counts import (
    BLOCK,
    WindowCounts,
    count_windows,
    index_name,
    no_windows,
    shuffled_windows,
    total_and_identity,
    window_dtype,
)
from foundation.errors import InputError
from foundation.outputs.manifest import Recipe

LARGEST_POSITION = np.iinfo(np.int32).max
"""Largest position that 32 bits number; longer streams take 64 bits."""
LARGEST_INDEX = 1 << 38
"""Most bytes of an index, 256 GiB; the largest reference batch size, 128, takes 13 GiB."""


def build_shuffled_index(
    sizes: IndexArray,
    *,
    sequence_length: int,
    num_samples: int,
    seed: int,
    plus_one: bool = False,
    keep: Keep = in_memory,
) -> SampleIndex:
    """Build the index of one dataset for at least ``num_samples`` samples, or of exactly one epoch if it is negative.

    Arguments are those of :func:`build_sample_index`. Every sample is whole: tokens that do not fill a window are
    dropped, in the one-epoch case too. Raises InputError when the dataset has no sample, or the index would be too
    large.
    """
    extra, num_documents = int(plus_one), len(sizes)
    num_tokens, lengths = total_and_identity(sizes)
    if num_samples < 0:
        whole_epoch = max(0, (num_tokens - extra) // sequence_length)
        counts = WindowCounts(1, whole_epoch, whole_epoch)
    else:
        counts = count_windows(num_tokens, sequence_length, num_samples, extra)
    if num_samples != 0 and counts.windows < 1:
        raise no_windows(num_tokens)
    positions = counts.epochs * num_documents
    start_dtype = np.int32 if positions <= LARGEST_POSITION else np.int64
    order_dtype = window_dtype(counts.windows)
    index_bytes = 4 * positions + counts.windows * (2 * start_dtype().itemsize + order_dtype().itemsize)
    if index_bytes > LARGEST_INDEX:
        raise InputError(
            f"{num_samples} samples take {counts.epochs} epochs of {num_documents} documents, whose index has "
            f"{index_bytes >> 30:,} GiB; at most {LARGEST_INDEX >> 30} GiB: request fewer samples"
        )

    @functools.cache
    def documents() -> tuple[npt.NDArray[np.int32], dict[str, Any]]:
        """Shuffle the documents; return them with the state of the generator, which shuffles the windows next."""
        random = np.random.RandomState(seed)
        return shuffled_documents(num_documents, counts, random), random.get_state(legacy=False)

    def windows() -> npt.NDArray[Any]:
        random = np.random.RandomState()
        random.set_state(documents()[1])
        return shuffled_windows(counts, random)

    arrays = {
        "document_idx": NewArray(np.int32, (positions,), lambda: documents()[0]),
        "sample_idx": NewArray(
            start_dtype,
            (counts.windows + 1, 2),
            lambda: _window_starts(sizes[:], documents()[0], counts.windows, sequence_length, extra, start_dtype),
        ),
        "shuffle_idx": NewArray(order_dtype, (counts.windows,), windows),
    }
    options = {
        "sequence_length": sequence_length,
        "num_samples": max(num_samples, -1),
        "plus_one": plus_one,
        "shuffle_documents": True,
        "seed": seed,
    }
    name = f"{index_name(lengths, sequence_length, num_samples, extra)}_documents_seed{seed}"
    index = keep(name, Recipe(STAGE, options, [lengths], bytes_version=INDEX_VERSION), arrays)
    return SampleIndex(
        num_documents, counts.epochs, index["sample_idx"], index["shuffle_idx"], document_idx=index["document_idx"]
    )


def shuffled_documents(
    num_documents: int, counts: WindowCounts, random: np.random.RandomState
) -> npt.NDArray[np.int32]:
    """Return the document at each position of the stream [epochs * num_documents]."""
    stream = np.empty((counts.epochs, num_documents), np.int32)
    stream[:] = np.arange(num_documents, dtype=np.int32)
    together = stream[:-1] if counts.last_epoch_apart else stream
    random.shuffle(together.reshape(-1))
    if counts.last_epoch_apart:
        random.shuffle(stream[-1])
    return stream.reshape(-1)


def _window_starts(
    sizes: npt.NDArray[np.int32],
    stream: npt.NDArray[np.int32],
    windows: int,
    sequence_length: int,
    extra: int,
    dtype: type[np.int32 | np.int64],
) -> npt.NDArray[Any]:
    """Return the start of each window and the end of the last [windows + 1, 2]: position in the stream, token offset.

    A window that ends with its document leaves the pointer on that document, as Megatron-Core's walk does.
    """
    starts = np.zeros((windows + 1, 2), dtype)
    tokens_before, window = 0, 1  # the first window starts at the first position, even if that document is empty
    for first in range(0, len(stream), BLOCK):
        lengths = sizes[stream[first : first + BLOCK]]
        document_ends = tokens_before + np.cumsum(lengths, dtype=np.int64)
        # Window w starts in the document that holds token w * sequence_length + extra - 1 of the stream.
        stop = min(windows + 1, max(window, -(-(int(document_ends[-1]) - extra + 1) // sequence_length)))
        tokens = np.arange(window, stop, dtype=np.int64) * sequence_length
        position = np.searchsorted(document_ends, tokens + (extra - 1), side="right")
        starts[window:stop, 0] = first + position
        starts[window:stop, 1] = tokens - (document_ends[position] - lengths[position])
        tokens_before, window = int(document_ends[-1]), stop
    return starts
