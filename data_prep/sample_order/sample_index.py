"""The index of one dataset: the tokens that make up training sample i, and the order in which samples are read.

GPT-3's reference lays the documents end to end in their natural order, epoch after epoch, cuts this stream into windows
of ``sequence_length`` tokens, and shuffles only the windows (docs/facts/reference.md b.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from data_prep.sample_order.kept_index import INDEX_VERSION, STAGE, IndexArray, Keep, NewArray, in_memory
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

DOCUMENTS_AT_ONCE = 1024


@dataclass(frozen=True)
class SampleIndex:
    """E epochs of S documents, cut into n samples."""

    num_documents: int
    """Number of documents, S."""
    num_epochs: int
    """Number of epochs, E."""
    sample_idx: IndexArray
    """Start of each sample and end of the last, int32 or int64 [n + 1, 2]: position in the stream, token offset."""
    shuffle_idx: IndexArray
    """Sample to read at each step of the order, [n]; uint32, or int64 from 2**32 - 2 samples on."""
    document_idx: IndexArray | None = None
    """Document at each position of the stream, int32 [E * S]; None: position p holds document p modulo S."""

    def documents(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the positions ``first`` to ``last`` of the stream, each with its document."""
        for start in range(first, last + 1, DOCUMENTS_AT_ONCE):
            positions = range(start, min(start + DOCUMENTS_AT_ONCE, last + 1))
            if self.document_idx is None:
                yield from ((position, position % self.num_documents) for position in positions)
            else:
                documents = self.document_idx[positions.start : positions.stop].tolist()
                yield from zip(positions, documents, strict=True)


def build_sample_index(
    sizes: IndexArray,
    *,
    sequence_length: int,
    num_samples: int,
    seed: int,
    plus_one: bool = False,
    keep: Keep = in_memory,
) -> SampleIndex:
    """Build the index of one dataset for at least ``num_samples`` samples, or of exactly one epoch if it is negative.

    ``sizes`` [S] are the documents' lengths in tokens. ``plus_one`` reads one token more per sample (not in this
    benchmark). ``keep`` keeps the arrays. Raises InputError when the dataset has no sample, or the index would need
    more than 32 bits.

    In the one-epoch case the last sample is kept however short. The reference counts the samples there in float32,
    which is wrong from 2**24 tokens on (docs/facts/reference.md j.14); here the count is exact.
    """
    extra, num_documents = int(plus_one), len(sizes)
    num_tokens, lengths = total_and_identity(sizes)
    if num_tokens <= extra:
        raise no_windows(num_tokens)
    if num_samples < 0:
        whole_epoch = -(-(num_tokens - extra) // sequence_length)
        counts = WindowCounts(1, whole_epoch, whole_epoch)
    else:
        counts = count_windows(num_tokens, sequence_length, num_samples, extra)
    if counts.epochs * num_documents > np.iinfo(np.int32).max:
        raise InputError(
            f"{num_samples} samples take {counts.epochs} epochs of {num_documents} documents, more than the index can "
            "number in 32 bits; request fewer samples"
        )
    # Another seed costs another shuffle index only.
    options = {"sequence_length": sequence_length, "num_samples": max(num_samples, -1), "plus_one": plus_one}
    name = index_name(lengths, sequence_length, num_samples, extra)
    starts = NewArray(
        np.int32,
        (counts.windows + 1, 2),
        lambda: _sample_starts(sizes[:], counts, sequence_length, extra),
    )
    order = NewArray(
        window_dtype(counts.windows),
        (counts.windows,),
        lambda: shuffled_windows(counts, np.random.RandomState(seed)),
    )
    recipe = Recipe(STAGE, options, [lengths], bytes_version=INDEX_VERSION)
    samples = keep(name, recipe, {"sample_idx": starts})
    shuffle = keep(f"{name}_seed{seed}", replace(recipe, options=options | {"seed": seed}), {"shuffle_idx": order})
    return SampleIndex(num_documents, counts.epochs, samples["sample_idx"], shuffle["shuffle_idx"])


def _sample_starts(
    sizes: npt.NDArray[np.int32], counts: WindowCounts, sequence_length: int, extra: int
) -> npt.NDArray[np.int32]:
    """Return the start of each sample and the end of the last [n + 1, 2].

    A sample that ends with its document leaves the pointer on that document, at its very end.
    """
    document_ends = np.cumsum(sizes, dtype=np.int64)
    num_tokens = int(document_ends[-1])
    sample_starts = np.empty((counts.windows + 1, 2), np.int32)
    for first in range(0, len(sample_starts), BLOCK):
        block = sample_starts[first : first + BLOCK]
        starts = np.arange(first, first + len(block), dtype=np.int64) * sequence_length
        epoch, token_before = np.divmod(starts + (extra - 1), num_tokens)
        document = np.searchsorted(document_ends, token_before, side="right")
        block[:, 0] = epoch * len(sizes) + document
        block[:, 1] = starts - (epoch * num_tokens + document_ends[document] - sizes[document])
    sample_starts[0] = 0, 0
    if counts.windows * sequence_length + extra > counts.epochs * num_tokens:
        sample_starts[-1] = counts.epochs * len(sizes) - 1, sizes[-1] - extra  # the last, short sample ends here
    return sample_starts
