"""Scan a dataset from end to end in a few tens of megabytes: check every pointer and length, count, compare."""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, idx_path
from foundation.errors import CheckFailed
from foundation.progress import Meter

LARGEST_VOCABULARY = 1 << 20


def check_index(data: IndexedDataset) -> int:
    """Check every length, pointer and document end, and the size of ``.bin``; return the number of tokens.

    Raises CheckFailed naming the file and the first document that is wrong.
    """
    path, documents = idx_path(data.prefix), len(data)
    if not documents:
        raise CheckFailed(f"{path}: holds no document")
    if problem := data.misplaced_document(least_tokens=1):
        raise CheckFailed(f"{path}: {problem}")
    # One sequence per document (docs/facts/reference.md a.4): the ends are 0, 1, ... up to the number of documents.
    if len(data.document_ends) != documents + 1:
        raise CheckFailed(
            f"{path}: {len(data.document_ends) - 1} documents in {documents} sequences; "
            "the benchmark's files have one sequence per document"
        )
    first = 0
    for document_ends in data.document_ends.blocks():
        bad_ends = np.flatnonzero(document_ends != np.arange(first, first + len(document_ends)))
        if len(bad_ends):
            number = first + int(bad_ends[0])
            raise CheckFailed(
                f"{path}: document {max(0, number - 1)} ends after {document_ends[bad_ends[0]]} sequences, not {number}"
            )
        first += len(document_ends)
    bin_bytes, described_bytes = data.bin_bytes, data.described_bytes
    if bin_bytes < described_bytes:
        detail = f"document {place_of(data, bin_bytes // data.dtype.itemsize)[0]} is the first that is not whole"
    elif bin_bytes > described_bytes:
        detail = f"{bin_bytes - described_bytes} bytes follow the last document, number {documents - 1}"
    else:
        return described_bytes // data.dtype.itemsize
    raise CheckFailed(
        f"{bin_path(data.prefix)}: {bin_bytes} bytes, but its index describes {described_bytes}; {detail}"
    )


def place_of(data: IndexedDataset, token: int) -> tuple[int, int]:
    """Return the document that holds token number ``token`` of the file, and the token's number in the document.

    The pointers must have been checked.
    """
    document = max(0, bisect.bisect_right(data.pointers, token * data.dtype.itemsize) - 1)
    return document, token - int(data.pointers[document]) // data.dtype.itemsize


def document_ids(data: IndexedDataset, number: int) -> npt.NDArray[Any]:
    """Return the token ids of one document; none if there is no such document."""
    if number >= len(data):
        return np.empty(0, data.dtype)
    return data.tokens(number, 0, int(data.sizes[number]))


def count_lengths(data: IndexedDataset) -> "pd.Series[int]":
    """Count the documents of each length in tokens: documents by length, ascending."""
    lengths: pd.Series[int] = pd.concat([pd.Series(sizes).value_counts() for sizes in data.sizes.blocks()])
    return lengths.groupby(level=0).sum()


def count_tokens(data: IndexedDataset, advance: Meter) -> "pd.Series[int]":
    """Count the tokens of each id that occurs, ascending; ``advance`` is told the bytes read.

    Raises CheckFailed for a value that cannot be a token id, naming its document.
    """
    counts = np.zeros(LARGEST_VOCABULARY, np.int64)
    first = 0
    for tokens in data.ids.blocks():
        if int(tokens.min()) < 0 or int(tokens.max()) >= LARGEST_VOCABULARY:
            bad_token = int(np.flatnonzero((tokens < 0) | (tokens >= LARGEST_VOCABULARY))[0])
            document, token = place_of(data, first + bad_token)
            raise CheckFailed(
                f"{bin_path(data.prefix)}: document {document}, token {token}: {tokens[bad_token]} is not a token id"
            )
        block_counts = np.bincount(tokens)
        counts[: len(block_counts)] += block_counts
        first += len(tokens)
        advance(tokens.nbytes)
    ids = np.flatnonzero(counts)
    return pd.Series(counts[ids], ids)


def first_at_least(data: IndexedDataset, limit: int) -> tuple[int, int] | None:
    """Find the first id that is not below ``limit``; return its document and its number there, or None if there is
    none."""
    first = 0
    for tokens in data.ids.blocks():
        beyond = np.flatnonzero(tokens >= limit)
        if len(beyond):
            return place_of(data, first + int(beyond[0]))
        first += len(tokens)
    return None


@dataclass(frozen=True)
class Difference:
    """The place where two datasets first differ."""

    document: int
    token: int
    """Number of the token in that document."""
    here: int | None
    """Id there in the first dataset; None if the document has ended or does not exist."""
    there: int | None
    """Id there in the second dataset; None if the document has ended or does not exist."""


def first_difference(first_data: IndexedDataset, second_data: IndexedDataset) -> Difference | None:
    """Find the first document, and the first token in it, that differs between two datasets; None if they are equal."""
    token = _first_unequal(first_data.ids.blocks(), second_data.ids.blocks())
    document = _first_unequal(first_data.sizes.blocks(), second_data.sizes.blocks())
    if token is not None:
        # Up to there the ids are the same: where the lengths are as well, the place is the same in both.
        longer = max((first_data, second_data), key=lambda data: len(data.ids))
        in_document = place_of(longer, token)[0]
        document = in_document if document is None else min(document, in_document)
    if document is None:
        return None
    first_ids, second_ids = document_ids(first_data, document), document_ids(second_data, document)
    common = min(len(first_ids), len(second_ids))
    unequal = np.flatnonzero(first_ids[:common] != second_ids[:common])
    position = int(unequal[0]) if len(unequal) else common
    return Difference(
        document, position, *(int(ids[position]) if position < len(ids) else None for ids in (first_ids, second_ids))
    )


def _first_unequal(first_blocks: Iterator[npt.NDArray[Any]], second_blocks: Iterator[npt.NDArray[Any]]) -> int | None:
    """Return the number of the first item that differs; if one input ends before the other, that is a difference,
    too."""
    first = 0
    while True:
        first_block, second_block = (next(blocks, np.empty(0, np.int8)) for blocks in (first_blocks, second_blocks))
        common = min(len(first_block), len(second_block))
        unequal = np.flatnonzero(first_block[:common] != second_block[:common])
        if len(unequal):
            return first + int(unequal[0])
        if len(first_block) != len(second_block):
            return first + common
        if not common:
            return None
        first += common


def total_variation(first_counts: "pd.Series[int]", second_counts: "pd.Series[int]") -> float:
    """Return the total variation: half the sum of |p - q|, from 0 (equal) to 1 (nothing in common)."""
    return float(np.abs(_share_differences(first_counts, second_counts)).sum() / 2)


def largest_gap(first_counts: "pd.Series[int]", second_counts: "pd.Series[int]") -> float:
    """Return Kolmogorov and Smirnov's distance: the largest difference of the shares up to a value, 0 to 1."""
    return float(np.abs(np.cumsum(_share_differences(first_counts, second_counts))).max())


def _share_differences(first_counts: "pd.Series[int]", second_counts: "pd.Series[int]") -> npt.NDArray[Any]:
    """Return the share of each value in the first minus that in the second, over all values of both, ascending."""
    return (
        (first_counts / first_counts.sum())
        .sub(second_counts / second_counts.sum(), fill_value=0)
        .sort_index()
        .to_numpy(np.float64)
    )
