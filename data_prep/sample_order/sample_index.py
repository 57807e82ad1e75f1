"""Which tokens make up training sample i of one dataset: the document, sample and shuffle index.

Documents are laid end to end in their natural order, ``num_epochs`` times; the stream is cut into windows of
``sequence_length`` tokens; only the order of the windows is shuffled (docs/facts/reference.md b.2).
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.sample_order.index_cache import IndexArray, Keep, in_memory
from stage.errors import InputError

SHARE_OF_AN_EPOCH_SHUFFLED_APART = 0.80
BLOCK = 1 << 20
"""Samples placed at once."""


@dataclass(frozen=True)
class SampleIndex:
    """E epochs of S documents, cut into n samples."""

    document_idx: IndexArray
    """int32 [E * S] document at each position of the stream."""
    sample_idx: IndexArray
    """int32 [n + 1, 2] where each sample starts and the last one ends: index into ``document_idx``, token offset."""
    shuffle_idx: IndexArray
    """[n] sample to read at each step of the order; uint32, or int64 from 2**32 - 2 samples on."""
    num_epochs: int
    separate_last_epoch: bool
    """The last epoch is needed only in part, so its samples are shuffled among themselves, after the others."""


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
    benchmark). ``keep`` says where the arrays are kept. Raises InputError when the dataset has no sample, or the index
    would need more than 32 bits.

    In the one-epoch case the last sample is kept however short. The reference counts the samples there in float32,
    which is wrong from 2**24 tokens on (docs/facts/reference.md j.14); here the count is exact.
    """
    extra, num_documents = int(plus_one), len(sizes)
    num_tokens, identity = _look_through(sizes)
    cut = _cut(num_tokens, sequence_length, num_samples, extra)
    _require_32_bits(cut, num_documents, num_samples)
    names = _names(identity, cut.num_epochs, sequence_length, num_samples, seed, plus_one)
    document_idx = keep(
        names.document_idx,
        np.int32,
        (cut.num_epochs * num_documents,),
        lambda: np.tile(np.arange(num_documents, dtype=np.int32), cut.num_epochs),
    )
    sample_idx = keep(
        names.sample_idx,
        np.int32,
        (cut.num_samples + 1, 2),
        lambda: _sample_starts(_read(sizes, identity), cut, sequence_length, extra),
    )
    shuffle_idx = keep(
        names.shuffle_idx,
        _shuffle_dtype(cut.num_samples),
        (cut.num_samples,),
        lambda: _shuffle(cut.num_samples, cut.shuffled_first, seed),
    )
    return SampleIndex(document_idx, sample_idx, shuffle_idx, cut.num_epochs, cut.separate_last_epoch)


def _require_32_bits(cut: "_Cut", num_documents: int, num_samples: int) -> None:
    if cut.num_epochs * num_documents > np.iinfo(np.int32).max:
        raise InputError(
            f"{num_samples} samples take {cut.num_epochs} epochs of {num_documents} documents, more than the index can "
            "number in 32 bits; request fewer samples"
        )


@dataclass(frozen=True)
class _Names:
    """Under which each array is kept."""

    document_idx: str
    sample_idx: str
    shuffle_idx: str


def _names(dataset: str, num_epochs: int, sequence_length: int, num_samples: int, seed: int, plus_one: bool) -> _Names:
    """Each name tells what its array depends on and no more: another seed costs another shuffle index only.
    ``dataset``: see :func:`_look_through`."""
    length = f"{sequence_length}{'+1' if plus_one else ''}"
    request = "all" if num_samples < 0 else num_samples
    samples = f"{dataset}_{length}tokens_{request}samples"
    return _Names(
        f"{dataset}_{num_epochs}epochs.document_idx", f"{samples}.sample_idx", f"{samples}_seed{seed}.shuffle_idx"
    )


@dataclass(frozen=True)
class _Cut:
    """What follows from the number of tokens alone."""

    num_epochs: int
    num_samples: int
    shuffled_first: int
    """Samples shuffled among themselves before the rest, if there is a rest."""
    separate_last_epoch: bool


def _cut(num_tokens: int, sequence_length: int, num_samples: int, extra: int) -> _Cut:
    if num_tokens <= extra:
        raise InputError(f"a dataset of {num_tokens} tokens holds no sample")
    per_epoch = (num_tokens - extra) // sequence_length
    if num_samples < 0:
        total = -(-(num_tokens - extra) // sequence_length)
        return _Cut(1, total, total, False)
    # The smallest number >= 1 of epochs with floor((epochs * num_tokens - extra) / sequence_length) >= num_samples.
    num_epochs = max(1, -(-(num_samples * sequence_length + extra) // num_tokens))
    total = (num_epochs * num_tokens - extra) // sequence_length
    if num_epochs == 1:
        return _Cut(1, total, total, False)
    before_last = ((num_epochs - 1) * num_tokens - extra) // sequence_length
    separate = num_samples - before_last < int(SHARE_OF_AN_EPOCH_SHUFFLED_APART * per_epoch)
    return _Cut(num_epochs, total, before_last if separate else total, separate)


def _look_through(sizes: IndexArray) -> tuple[int, str]:
    """How many tokens there are, and what names a dataset by its documents' lengths: no index depends on anything else
    in it. Raises InputError for a length below 0."""
    num_tokens, digest = 0, hashlib.md5(usedforsecurity=False)
    for start in range(0, len(sizes), BLOCK):
        block = np.ascontiguousarray(sizes[start : start + BLOCK], "<i4")
        if int(block.min()) < 0:
            raise InputError(f"a document of {block.min()} tokens; the index is damaged, make the dataset again")
        num_tokens += int(block.sum(dtype=np.int64))
        digest.update(block.data)
    return num_tokens, digest.hexdigest()[:12]


def _read(sizes: IndexArray, identity: str) -> npt.NDArray[np.int32]:
    """All lengths, if they are still those that were looked through."""
    found = sizes[:]
    if _look_through(found)[1] != identity:
        raise InputError("the lengths of its documents changed while they were read; run the command again")
    return found


def _sample_starts(sizes: npt.NDArray[np.int32], cut: _Cut, sequence_length: int, extra: int) -> npt.NDArray[np.int32]:
    """[n + 1, 2]. A sample that ends with its document leaves the pointer on that document, at its very end."""
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
    """Samples [0, first) shuffled among themselves, then [first, total), from one legacy NumPy generator."""
    random = np.random.RandomState(seed)
    order = np.arange(total, dtype=_shuffle_dtype(total))
    random.shuffle(order[:first])
    if first != total:
        random.shuffle(order[first:])
    return order
