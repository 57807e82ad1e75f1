"""Which tokens make up training sample i of one dataset: the document, sample and shuffle index (reference facts b.2).

Documents are laid end to end in their natural order, ``num_epochs`` times; the stream is cut into windows of
``sequence_length`` tokens; only the order of the windows is shuffled.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stage.errors import InputError

SHARE_OF_AN_EPOCH_SHUFFLED_APART = 0.80


@dataclass(frozen=True)
class SampleIndex:
    """E epochs of S documents, cut into n samples."""

    document_idx: npt.NDArray[np.int32]
    """[E * S] document at each position of the stream."""
    sample_idx: npt.NDArray[np.int32]
    """[n + 1, 2] where each sample starts and the last one ends: index into ``document_idx``, token offset."""
    shuffle_idx: npt.NDArray[Any]
    """[n] sample to read at each step of the order; uint32, or int64 from 2**32 - 2 samples on."""
    num_epochs: int
    separate_last_epoch: bool
    """The last epoch is needed only in part, so its samples are shuffled among themselves, after the others."""


def build_sample_index(
    sizes: npt.NDArray[np.int32], *, sequence_length: int, num_samples: int, seed: int, plus_one: bool = False
) -> SampleIndex:
    """Build the index of one dataset for at least ``num_samples`` samples, or of exactly one epoch if it is negative.

    ``sizes`` [S] are the documents' lengths in tokens. ``plus_one`` reads one token more per sample (not in this
    benchmark). Raises InputError when the dataset has no whole sample.

    In the one-epoch case the last sample is kept however short. The reference counts the samples there in float32,
    which is wrong from 2**24 tokens on (facts j 14); here the count is exact.
    """
    extra = int(plus_one)
    num_tokens = int(sizes.sum(dtype=np.int64))
    if num_tokens <= extra:
        raise InputError(f"a dataset of {num_tokens} tokens holds no sample")
    keep_last = num_samples < 0
    num_epochs = 1 if keep_last else _num_epochs(num_tokens, sequence_length, num_samples, extra)
    if keep_last:
        total = -(-(num_tokens - extra) // sequence_length)
    else:
        total = (num_epochs * num_tokens - extra) // sequence_length

    separate, shuffled_first = False, total
    if num_epochs > 1:
        before_last = ((num_epochs - 1) * num_tokens - extra) // sequence_length
        per_epoch = (num_tokens - extra) // sequence_length
        separate = num_samples - before_last < int(SHARE_OF_AN_EPOCH_SHUFFLED_APART * per_epoch)
        shuffled_first = before_last if separate else total

    document_idx = np.tile(np.arange(len(sizes), dtype=np.int32), num_epochs)
    sample_idx = _sample_starts(sizes, num_epochs, sequence_length, total, extra)
    return SampleIndex(document_idx, sample_idx, _shuffle(total, shuffled_first, seed), num_epochs, separate)


def _num_epochs(num_tokens: int, sequence_length: int, num_samples: int, extra: int) -> int:
    """Smallest e >= 1 with floor((e * num_tokens - extra) / sequence_length) >= num_samples."""
    return max(1, -(-(num_samples * sequence_length + extra) // num_tokens))


def _sample_starts(
    sizes: npt.NDArray[np.int32], num_epochs: int, sequence_length: int, total: int, extra: int
) -> npt.NDArray[np.int32]:
    """[total + 1, 2]. A sample that ends with its document leaves the pointer on that document, at its very end."""
    lengths = np.tile(sizes, num_epochs)
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = np.arange(total + 1, dtype=np.int64) * sequence_length
    document = np.searchsorted(ends, starts + extra, side="left")
    beyond = document == len(ends)
    document[beyond] -= 1
    offset = starts - ends[document] + lengths[document]
    offset[beyond] = lengths[-1] - extra  # the kept last sample ends where the tokens end
    document[0], offset[0] = 0, 0
    return np.stack([document, offset], axis=1).astype(np.int32)


def _shuffle(total: int, first: int, seed: int) -> npt.NDArray[Any]:
    """Samples [0, first) shuffled among themselves, then [first, total), from one legacy NumPy generator."""
    dtype = np.uint32 if total < np.iinfo(np.uint32).max - 1 else np.int64
    random = np.random.RandomState(seed)
    parts = [np.arange(0, first, dtype=dtype), np.arange(first, total, dtype=dtype)]
    for part in parts if first != total else parts[:1]:
        random.shuffle(part)
    return np.concatenate(parts)
