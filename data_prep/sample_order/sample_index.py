"""The index of one dataset: the tokens that make up training sample i, and the order in which samples are read.

Documents are laid end to end in their natural order, ``num_epochs`` times; the stream is cut into windows of
``sequence_length`` tokens; only the order of the windows is shuffled (docs/facts/reference.md b.2).
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.sample_order.kept_index import STAGE, IndexArray, Keep, NewArray, in_memory
from foundation.errors import InputError
from foundation.outputs.manifest import Recipe, Source

SHARE_OF_AN_EPOCH_SHUFFLED_APART = 0.80
BLOCK = 1 << 20
"""Number of samples placed at once."""


@dataclass(frozen=True)
class SampleIndex:
    """E epochs of S documents, cut into n samples. Position p of the stream holds document p modulo S."""

    num_documents: int
    """Number of documents, S."""
    num_epochs: int
    """Number of epochs, E."""
    sample_idx: IndexArray
    """Start of each sample and end of the last, int32 [n + 1, 2]: position in the stream, token offset."""
    shuffle_idx: IndexArray
    """Sample to read at each step of the order, [n]; uint32, or int64 from 2**32 - 2 samples on."""


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
    num_tokens, identity = _look_through(sizes)
    cut = _cut(num_tokens, sequence_length, num_samples, extra)
    if cut.num_epochs * num_documents > np.iinfo(np.int32).max:
        raise InputError(
            f"{num_samples} samples take {cut.num_epochs} epochs of {num_documents} documents, more than the index can "
            "number in 32 bits; request fewer samples"
        )
    # No index depends on anything else in a dataset than the lengths; another seed costs another shuffle index only.
    lengths = Source("lengths of the documents", 1, 4 * num_documents, f"md5:{identity}")
    options = {"sequence_length": sequence_length, "num_samples": max(num_samples, -1), "plus_one": plus_one}
    request = "all" if num_samples < 0 else num_samples
    name = f"{identity[:12]}_{sequence_length}{'+1' if plus_one else ''}tokens_{request}samples"
    starts = NewArray(
        np.int32,
        (cut.num_samples + 1, 2),
        lambda: _sample_starts(sizes[:], cut, sequence_length, extra),
    )
    order = NewArray(
        _shuffle_dtype(cut.num_samples),
        (cut.num_samples,),
        lambda: _shuffle(cut.num_samples, cut.shuffled_first, seed),
    )
    samples = keep(name, Recipe(STAGE, options, [lengths]), {"sample_idx": starts})
    shuffle = keep(f"{name}_seed{seed}", Recipe(STAGE, options | {"seed": seed}, [lengths]), {"shuffle_idx": order})
    return SampleIndex(num_documents, cut.num_epochs, samples["sample_idx"], shuffle["shuffle_idx"])


@dataclass(frozen=True)
class _Cut:
    """Numbers that follow from the number of tokens alone."""

    num_epochs: int
    num_samples: int
    shuffled_first: int
    """Number of samples shuffled among themselves, before the rest: all but the last epoch, if only a part of that is
    needed."""


def _cut(num_tokens: int, sequence_length: int, num_samples: int, extra: int) -> _Cut:
    """Count epochs and samples. Raises InputError for a dataset with too few tokens for a sample."""
    if num_tokens <= extra:
        raise InputError(f"a dataset of {num_tokens} tokens holds no sample")
    per_epoch = (num_tokens - extra) // sequence_length
    if num_samples < 0:
        total = -(-(num_tokens - extra) // sequence_length)
        return _Cut(1, total, total)
    # The smallest number >= 1 of epochs with floor((epochs * num_tokens - extra) / sequence_length) >= num_samples.
    num_epochs = max(1, -(-(num_samples * sequence_length + extra) // num_tokens))
    total = (num_epochs * num_tokens - extra) // sequence_length
    if num_epochs == 1:
        return _Cut(1, total, total)
    before_last = ((num_epochs - 1) * num_tokens - extra) // sequence_length
    separate = num_samples - before_last < int(SHARE_OF_AN_EPOCH_SHUFFLED_APART * per_epoch)
    return _Cut(num_epochs, total, before_last if separate else total)


def _look_through(sizes: IndexArray) -> tuple[int, str]:
    """Return the number of tokens, and the MD5 of all lengths. Raises InputError for a length below 0."""
    num_tokens, digest = 0, hashlib.md5(usedforsecurity=False)
    for start in range(0, len(sizes), BLOCK):
        block = np.ascontiguousarray(sizes[start : start + BLOCK], "<i4")
        if int(block.min()) < 0:
            raise InputError(f"a document of {block.min()} tokens; the index is damaged, make the dataset again")
        num_tokens += int(block.sum(dtype=np.int64))
        digest.update(block.data)
    return num_tokens, digest.hexdigest()


def _sample_starts(sizes: npt.NDArray[np.int32], cut: _Cut, sequence_length: int, extra: int) -> npt.NDArray[np.int32]:
    """Return the start of each sample and the end of the last [n + 1, 2].

    A sample that ends with its document leaves the pointer on that document, at its very end.
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    num_tokens = int(ends[-1])
    found = np.empty((cut.num_samples + 1, 2), np.int32)
    for first in range(0, len(found), BLOCK):
        block = found[first : first + BLOCK]
        starts = np.arange(first, first + len(block), dtype=np.int64) * sequence_length
        epoch, token_before = np.divmod(starts + (extra - 1), num_tokens)
        document = np.searchsorted(ends, token_before, side="right")
        block[:, 0] = epoch * len(sizes) + document
        block[:, 1] = starts - (epoch * num_tokens + ends[document] - sizes[document])
    found[0] = 0, 0
    if cut.num_samples * sequence_length + extra > cut.num_epochs * num_tokens:
        found[-1] = cut.num_epochs * len(sizes) - 1, sizes[-1] - extra  # the last one, kept, ends with the tokens
    return found


def _shuffle_dtype(total: int) -> type[np.unsignedinteger[Any] | np.signedinteger[Any]]:
    return np.uint32 if total < np.iinfo(np.uint32).max - 1 else np.int64


def _shuffle(total: int, first: int, seed: int) -> npt.NDArray[Any]:
    """Return samples [0, first) shuffled among themselves, then [first, total), by one legacy NumPy generator."""
    random = np.random.RandomState(seed)
    order = np.arange(total, dtype=_shuffle_dtype(total))
    random.shuffle(order[:first])
    if first != total:
        random.shuffle(order[first:])
    return order
