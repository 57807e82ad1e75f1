"""Token windows in the order in which training or evaluation reads them (docs/facts/reference.md b.2, b.4)."""

import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from data_prep.sample_order.blend import (
    blend_index,
    megatron_core_samples,
    normalized,
    normalized_twice,
    samples_per_dataset,
)
from data_prep.sample_order.kept_index import IndexArray, KeptIndex, index_folder
from data_prep.sample_order.sample_index import SampleIndex, build_sample_index
from data_prep.sample_order.shuffled_documents import build_shuffled_index
from data_prep.token_files.indexed_dataset import IndexedDataset, idx_path
from data_prep.token_files.same_tokenizer import require_same_tokenizer
from foundation.errors import InputError
from foundation.sizes import require_between

PADDING = -1
LARGEST_SEED = (1 << 32) - 1
"""Largest seed that NumPy's legacy generator takes."""
LONGEST_SEQUENCE = 1 << 24
"""Longest sequence, a thousand times longer than models use; a sample of that length takes 128 MiB."""


@dataclass(frozen=True)
class DocumentPart:
    """Consecutive tokens of a document that a sample holds."""

    prefix: Path
    document: int
    """Number from 0, in the order in which preprocess read the lines."""
    begin: int
    end: int
    """First token, and the end (exclusive)."""

    def __str__(self) -> str:
        return f"{self.prefix} document {self.document} tokens {self.begin} to {self.end - 1}"


class TokenWindows(Protocol):
    """The samples that training reads: ``len()`` of them, each a window of tokens."""

    def __len__(self) -> int: ...

    def window(self, sample: int) -> npt.NDArray[np.int64]:
        """Return the tokens of one sample, [sequence_length (+1)], padded on the right with -1."""
        ...

    def documents(self, sample: int) -> list[DocumentPart]:
        """Return the parts of documents that a sample is made of, in order, without empty ones."""
        ...


def require_vocabulary(windows: TokenWindows, sample: int, window: npt.NDArray[np.int64], vocab_size: int) -> None:
    """Raise InputError if the ``window`` of a sample holds a token id that is not below ``vocab_size``."""
    if window.max() < vocab_size:
        return
    position = before = int((window >= vocab_size).argmax())
    for part in windows.documents(sample):
        if before < part.end - part.begin:
            raise InputError(
                f"{part.prefix}: document {part.document} holds token {window[position]}, but the model's vocabulary "
                f"has {vocab_size} (sample {sample}); the data was tokenised for another model, or is damaged"
            )
        before -= part.end - part.begin
    raise AssertionError(f"token {position} of sample {sample} is of no document")


@dataclass(frozen=True)
class SingleDataset:
    """The windows of one dataset."""

    tokens: IndexedDataset
    index: SampleIndex
    sequence_length: int
    plus_one: bool = False

    def __len__(self) -> int:
        return len(self.index.shuffle_idx)

    def window(self, sample: int) -> npt.NDArray[np.int64]:
        window = np.full(self.sequence_length + int(self.plus_one), PADDING, dtype=np.int64)
        filled = 0
        for document, begin, end in self._parts(sample):
            part = self.tokens.tokens(document, begin, end)
            if (least := int(part.min(initial=0))) < 0:
                raise InputError(f"{self.tokens.prefix}: document {document} holds token {least}; it is damaged")
            window[filled : filled + len(part)] = part
            filled += len(part)
        return window

    def documents(self, sample: int) -> list[DocumentPart]:
        sizes = self.tokens.sizes
        parts = [
            DocumentPart(self.tokens.prefix, document, begin, min(end, int(sizes[document])))
            for document, begin, end in self._parts(sample)
        ]
        return [part for part in parts if part.end > part.begin]

    def _parts(self, sample: int) -> list[tuple[int, int, int]]:
        """Return document, first token and end (exclusive) for each document that a sample covers.

        Raises InputError if the files of the index, which are read now, do not make up one sample.
        """
        k, width = int(self.index.shuffle_idx[sample]), self.sequence_length + int(self.plus_one)
        bounds = self.index.sample_idx[max(0, k) : k + 2].tolist()
        num_documents, parts, length = self.index.num_documents, [], 0
        if len(bounds) == 2 and 0 <= bounds[0][0] <= bounds[1][0] < self.index.num_epochs * num_documents:
            (first_position, start), (last_position, stop) = bounds
            for position, document in self.index.documents(first_position, last_position):
                if not 0 <= document < num_documents:
                    length = -1
                    break
                end = stop + int(self.plus_one) if position == last_position else int(self.tokens.sizes[document])
                parts.append((document, start if position == first_position else 0, end))
                length += parts[-1][2] - parts[-1][1]
                if length > width:
                    break
        short_end = self.index.document_idx is None and k == len(self) - 1  # the last sample of an epoch may be short
        fills_window = length == width or (short_end and 0 <= length < width)
        if not (parts and fills_window and all(0 <= begin <= end for _, begin, end in parts)):
            raise InputError(
                f"{self.tokens.prefix}: sample {sample} is no {width} tokens by its index; "
                f"{idx_path(self.tokens.prefix).name} or an index in {index_folder(self.tokens.prefix).name} is "
                "damaged or was changed: remove that folder and start again"
            )
        return parts


@dataclass(frozen=True)
class BlendedDataset:
    """The windows of several datasets, mixed by weight."""

    parts: Sequence[SingleDataset]
    dataset_index: IndexArray
    """Index into ``parts`` of the dataset that each sample comes from, uint8."""
    dataset_sample_index: IndexArray
    """Number of each sample within its dataset, int64."""

    def __len__(self) -> int:
        return len(self.dataset_index)

    def window(self, sample: int) -> npt.NDArray[np.int64]:
        part, item = self._locate(sample)
        return part.window(item)

    def documents(self, sample: int) -> list[DocumentPart]:
        part, item = self._locate(sample)
        return part.documents(item)

    def _locate(self, sample: int) -> tuple[SingleDataset, int]:
        """Return the dataset that a sample comes from, and its number there. Raises InputError for a sample that does
        not exist."""
        part, item = int(self.dataset_index[sample]), int(self.dataset_sample_index[sample])
        if part >= len(self.parts) or item < 0:
            raise InputError(
                f"blended sample {sample} would be sample {item} of dataset {part} of {len(self.parts)}; an index in "
                f"{index_folder(self.parts[0].tokens.prefix)} is damaged or was changed: remove it and start again"
            )
        if item >= len(self.parts[part]):
            raise InputError(
                f"blended sample {sample} would be sample {item} of {self.parts[part].tokens.prefix}, which has "
                f"{len(self.parts[part])}; request more samples, so that the dataset is read for more epochs"
            )
        return self.parts[part], item


def open_token_windows(
    data_path: Sequence[str],
    *,
    sequence_length: int,
    num_samples: int,
    seed: int,
    plus_one: bool = False,
    shuffle_documents: bool = False,
) -> TokenWindows:
    """Open ``P``, or the blend ``W P [W2 P2 …]``.

    ``num_samples``: number of samples that will be read; -1: one whole epoch, for evaluation. ``shuffle_documents``:
    Megatron-Core's order (``shuffled_documents``) and blends instead of those of GPT-3's reference.

    As in the reference, only a blend requests a margin of half a percent of its datasets (docs/facts/reference.md b.1).
    The index is built once and kept beside each dataset (``kept_index``), that of the blend beside the first. Raises
    InputError for numbers out of range, damaged datasets, and a blend of different tokenizers.
    """
    require_between(sequence_length, 1, LONGEST_SEQUENCE, "--seq-length")
    require_between(seed, 0, LARGEST_SEED, "--seed")
    if num_samples != -1:
        require_between(num_samples, 0, math.inf, "--num-samples")
    weights, prefixes = parse_data_path(data_path)
    datasets = [IndexedDataset(Path(prefix)) for prefix in prefixes]
    blended = len(data_path) > 1
    if blended:
        require_same_tokenizer([dataset.prefix for dataset in datasets])
    requests, shares, blend_size = [num_samples], [1.0], None
    if blended and shuffle_documents:
        requests, blend_size = megatron_core_samples(num_samples, weights)
        shares = normalized_twice(weights)
    elif blended:
        shares = normalized(weights)
        requests = samples_per_dataset(num_samples, shares)
    build_index = build_shuffled_index if shuffle_documents else build_sample_index
    indices = [KeptIndex(index_folder(dataset.prefix), functools.cache(dataset.require_whole)) for dataset in datasets]
    parts = []
    for dataset, index, request in zip(datasets, indices, requests, strict=True):
        try:
            built = build_index(
                dataset.sizes,
                sequence_length=sequence_length,
                num_samples=request,
                seed=seed,
                plus_one=plus_one,
                keep=index.arrays,
            )
        except InputError as error:
            raise InputError(f"{dataset.prefix}: {error}") from error
        parts.append(SingleDataset(dataset, built, sequence_length, plus_one))
    windows: TokenWindows = parts[0]
    if blended:
        size = sum(len(part) for part in parts) if blend_size is None else blend_size
        windows = BlendedDataset(parts, *blend_index(shares, size, keep=indices[0].arrays))
    problem = next((index.problem for index in indices if index.problem), None)
    if problem is not None:
        print(problem, file=sys.stderr)
    return windows


def parse_data_path(data_path: Sequence[str]) -> tuple[list[float], list[str]]:
    """Split ``P`` or ``W P [W2 P2 …]`` into weights and prefixes. Raises InputError for any other data path."""
    if len(data_path) == 1:
        return [1.0], list(data_path)
    try:
        if not data_path or len(data_path) % 2:
            raise ValueError
        return [float(weight) for weight in data_path[::2]], list(data_path[1::2])
    except ValueError:
        raise InputError(
            f"data path {' '.join(data_path)!r}: expected one prefix, or weights and prefixes in turn such as "
            "'0.5 A_text_document 0.5 B_text_document'"
        ) from None
