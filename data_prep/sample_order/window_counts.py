"""Counts that follow from a dataset's number of tokens: its epochs, its windows, and the windows shuffled apart.

A window is ``sequence_length`` tokens, plus ``extra`` tokens that it shares with the next window
(docs/facts/reference.md b.2, docs/facts/llama31_8b.md 9.6).
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.sample_order.kept_index import IndexArray
from foundation.errors import InputError
from foundation.outputs.manifest import Source

SHARE_OF_AN_EPOCH_SHUFFLED_APART = 0.80
BLOCK = 1 << 20
"""Number of documents or windows handled at once."""


@dataclass(frozen=True)
class WindowCounts:
    """Numbers of epochs and windows of a request."""

    epochs: int
    windows: int
    shuffled_first: int
    """Number of windows shuffled among themselves, before the rest: all but those of the last epoch if the request
    needs only a part of that epoch; else all windows."""

    @property
    def last_epoch_apart(self) -> bool:
        return self.shuffled_first < self.windows


def count_windows(num_tokens: int, sequence_length: int, num_samples: int, extra: int) -> WindowCounts:
    """Count the epochs and windows of a request for ``num_samples`` >= 0 windows.

    The number of epochs is the smallest with enough tokens. Raises InputError for a dataset without tokens.
    """
    if num_tokens < 1:
        raise no_windows(num_tokens)
    epochs = max(1, -(-(num_samples * sequence_length + extra) // num_tokens))
    windows = (epochs * num_tokens - extra) // sequence_length
    if epochs == 1:
        return WindowCounts(1, windows, windows)
    before_last = ((epochs - 1) * num_tokens - extra) // sequence_length
    per_epoch = (num_tokens - extra) // sequence_length
    apart = num_samples - before_last < int(SHARE_OF_AN_EPOCH_SHUFFLED_APART * per_epoch)
    return WindowCounts(epochs, windows, before_last if apart else windows)


def no_windows(num_tokens: int) -> InputError:
    return InputError(f"a dataset of {num_tokens} tokens holds no sample")


def total_and_identity(sizes: IndexArray) -> tuple[int, Source]:
    """Return the number of tokens, and the identity of all lengths: an index depends on nothing else of a dataset.

    Raises InputError for a length below 0.
    """
    num_tokens, digest = 0, hashlib.md5(usedforsecurity=False)
    for start in range(0, len(sizes), BLOCK):
        block = np.ascontiguousarray(sizes[start : start + BLOCK], "<i4")
        if int(block.min()) < 0:
            raise InputError(f"a document of {block.min()} tokens; the index is damaged, make the dataset again")
        num_tokens += int(block.sum(dtype=np.int64))
        digest.update(block.data)
    return num_tokens, Source("lengths of the documents", 1, 4 * len(sizes), f"md5:{digest.hexdigest()}")


def index_name(lengths: Source, sequence_length: int, num_samples: int, extra: int) -> str:
    """Return the name under which an index is kept."""
    request = "all" if num_samples < 0 else num_samples
    digest = lengths.identity.removeprefix("md5:")[:12]
    return f"{digest}_{sequence_length}{'+1' if extra else ''}tokens_{request}samples"


def window_dtype(windows: int) -> type[np.unsignedinteger[Any] | np.signedinteger[Any]]:
    """Return the type of window numbers that the reference chooses."""
    return np.uint32 if windows < np.iinfo(np.uint32).max - 1 else np.int64


def shuffled_windows(counts: WindowCounts, random: np.random.RandomState) -> npt.NDArray[Any]:
    """Return the order of the windows: the first ones shuffled among themselves, then the windows shuffled apart."""
    order = np.arange(counts.windows, dtype=window_dtype(counts.windows))
    random.shuffle(order[: counts.shuffled_first])
    if counts.last_epoch_apart:
        random.shuffle(order[counts.shuffled_first :])
    return order
