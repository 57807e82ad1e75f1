"""A dataset from end to end in a few tens of megabytes: checks of every pointer and length, counts, comparison.

The files are read by plain reads of blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.token_files.indexed_dataset import HEADER, IndexedDataset, bin_path, idx_path, read_header
from stage.errors import CheckFailed, InputError
from stage.progress import Advance

Int64 = npt.NDArray[np.int64]

BLOCK_ITEMS = 1 << 20
"""Tokens, lengths or pointers per read: at most 8 MB."""
COUNTED_DIRECTLY = 1 << 20
"""Values below are counted in one array. No vocabulary is that large, and few documents are that long."""


class DatasetBlocks:
    """The arrays of ``PREFIX.bin/.idx`` as iterators over blocks of at most ``BLOCK_ITEMS``.

    Raises InputError when a file is missing, the index truncated or not in this format, or the tokens not integers.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.header = read_header(prefix)
        self.dtype = self.header.dtype
        if self.dtype.kind not in "iu":
            raise InputError(f"{idx_path(prefix)}: holds {self.dtype.name} values, not token ids")

    def sizes(self) -> Iterator[npt.NDArray[Any]]:
        """int32: tokens of each document."""
        return _blocks(idx_path(self.prefix), "<i4", HEADER.size, self.header.sequences)

    def pointers(self) -> Iterator[npt.NDArray[Any]]:
        """int64: where each document begins, in bytes."""
        return _blocks(idx_path(self.prefix), "<i8", self.header.pointers_at, self.header.sequences)

    def document_ends(self) -> Iterator[npt.NDArray[Any]]:
        return _blocks(idx_path(self.prefix), "<i8", self.header.document_ends_at, self.header.num_document_ends)

    def tokens(self) -> Iterator[npt.NDArray[Any]]:
        """Token ids of all documents, end to end."""
        count = bin_path(self.prefix).stat().st_size // self.dtype.itemsize
        return _blocks(bin_path(self.prefix), self.dtype, 0, count)

    def document(self, number: int) -> npt.NDArray[Any]:
        """Token ids of one document; empty if there is no such document."""
        if number >= self.header.sequences:
            return np.empty(0, self.dtype)
        dataset = IndexedDataset(self.prefix)
        return dataset.tokens(number, 0, int(dataset.sizes[number]))

    def place_of(self, token: int) -> tuple[int, int]:
        """Document that holds token number ``token`` of the file, and the token's number in it; pointers must hold."""
        position = token * self.dtype.itemsize
        document, pointer, first = 0, 0, 0
        for pointers in self.pointers():
            within = int(np.searchsorted(pointers, position, side="right"))
            if within:
                document, pointer = first + within - 1, int(pointers[within - 1])
            if within < len(pointers):
                break
            first += len(pointers)
        return document, token - pointer // self.dtype.itemsize


def _blocks(path: Path, dtype: Any, offset: int, count: int) -> Iterator[npt.NDArray[Any]]:
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        while count:
            block = np.fromfile(file, dtype, min(count, BLOCK_ITEMS))
            if not len(block):
                raise InputError(f"{path}: became shorter while it was read")
            yield block
            count -= len(block)


def check_index(data: DatasetBlocks) -> int:
    """Check every length, pointer and document end, and the size of ``.bin``; returns the number of tokens.

    Raises CheckFailed naming the file and the first document that is wrong.
    """
    path, itemsize = idx_path(data.prefix), data.dtype.itemsize
    if not data.header.sequences:
        raise CheckFailed(f"{path}: holds no document")
    first = end = 0
    for sizes, pointers in zip(data.sizes(), data.pointers(), strict=True):
        ends = end + np.cumsum(sizes, dtype=np.int64) * itemsize
        starts = np.concatenate([[end], ends[:-1]])
        bad = np.flatnonzero((sizes <= 0) | (pointers != starts))
        if len(bad):
            place = bad[0]
            raise CheckFailed(
                f"{path}: document {first + place} has {sizes[place]} tokens from byte {pointers[place]} on, "
                f"expected at least 1 token and byte {starts[place]}, where the document before it ends"
            )
        first, end = first + len(sizes), int(ends[-1])
    _check_document_ends(data)
    _check_bin_size(data, end)
    return end // itemsize


def _check_document_ends(data: DatasetBlocks) -> None:
    """One sequence per document (docs/facts/reference.md a.4): the ends are 0, 1, … up to the number of documents."""
    path, sequences = idx_path(data.prefix), data.header.sequences
    if data.header.num_document_ends != sequences + 1:
        raise CheckFailed(
            f"{path}: {data.header.num_document_ends - 1} documents in {sequences} sequences; "
            "the benchmark's files have one sequence per document"
        )
    first = 0
    for ends in data.document_ends():
        bad = np.flatnonzero(ends != np.arange(first, first + len(ends)))
        if len(bad):
            number = first + int(bad[0])
            raise CheckFailed(
                f"{path}: document {max(0, number - 1)} ends after {ends[bad[0]]} sequences, not {number}"
            )
        first += len(ends)


def _check_bin_size(data: DatasetBlocks, expected: int) -> None:
    path = bin_path(data.prefix)
    found = path.stat().st_size
    if found == expected:
        return
    if found > expected:
        detail = f"{found - expected} bytes follow the last document, number {data.header.sequences - 1}"
    else:
        detail = f"document {data.place_of(found // data.dtype.itemsize)[0]} is the first that is not whole"
    raise CheckFailed(f"{path}: {found} bytes, but its index describes {expected}; {detail}")


@dataclass(frozen=True)
class Counts:
    """How often each value occurs."""

    values: Int64
    """Ascending."""
    counts: Int64
    """At least 1 each."""

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        return float(self.values @ self.counts / self.total)

    def percentile(self, percent: float) -> int:
        """The smallest value that at least ``percent`` of 100 do not exceed."""
        reached = np.searchsorted(np.cumsum(self.counts), self.total * percent / 100)
        return int(self.values[min(int(reached), len(self.values) - 1)])


def count_lengths(data: DatasetBlocks) -> Counts:
    """How many documents have each length in tokens."""
    counts = np.zeros(COUNTED_DIRECTLY, np.int64)
    longer: list[npt.NDArray[Any]] = []
    for sizes in data.sizes():
        _add_counts(counts, sizes[sizes < COUNTED_DIRECTLY])
        longer.append(sizes[sizes >= COUNTED_DIRECTLY])
    values = np.flatnonzero(counts)
    long_values, long_counts = np.unique(np.concatenate(longer), return_counts=True)
    return Counts(np.concatenate([values, long_values.astype(np.int64)]), np.concatenate([counts[values], long_counts]))


def count_tokens(data: DatasetBlocks, advance: Advance) -> Counts:
    """How often each token id occurs; ``advance`` is told the bytes read.

    Raises CheckFailed for a value that is no vocabulary's id, naming its document.
    """
    counts = np.zeros(COUNTED_DIRECTLY, np.int64)
    first = 0
    for tokens in data.tokens():
        if int(tokens.min()) < 0 or int(tokens.max()) >= COUNTED_DIRECTLY:
            place = int(np.flatnonzero((tokens < 0) | (tokens >= COUNTED_DIRECTLY))[0])
            document, token = data.place_of(first + place)
            raise CheckFailed(
                f"{bin_path(data.prefix)}: document {document}, token {token}: {tokens[place]} is not a token id"
            )
        _add_counts(counts, tokens)
        first += len(tokens)
        advance(tokens.nbytes)
    values = np.flatnonzero(counts)
    return Counts(values, counts[values])


def _add_counts(counts: Int64, values: npt.NDArray[Any]) -> None:
    found = np.bincount(values)
    counts[: len(found)] += found


def first_at_least(data: DatasetBlocks, limit: int) -> tuple[int, int] | None:
    """Document and token, in that document, of the first id that is not below ``limit``."""
    first = 0
    for tokens in data.tokens():
        found = np.flatnonzero(tokens >= limit)
        if len(found):
            return data.place_of(first + int(found[0]))
        first += len(tokens)
    return None


@dataclass(frozen=True)
class Difference:
    """Where two datasets first differ."""

    document: int
    token: int
    """In that document."""
    here: int | None
    """Id at that place in the first dataset; None where the document has ended or there is no such document."""
    there: int | None
    """Id at that place in the second dataset, or None likewise."""


def first_difference(one: DatasetBlocks, other: DatasetBlocks) -> Difference | None:
    """The first document, and the first token in it, that two datasets do not share; None if they are the same."""
    token = _first_unequal(one.tokens(), other.tokens())
    document = _first_unequal(one.sizes(), other.sizes())
    if token is not None:
        # Up to there the ids are the same: where the lengths are as well, the place is the same in both.
        longer = max((one, other), key=lambda data: bin_path(data.prefix).stat().st_size // data.dtype.itemsize)
        in_document = longer.place_of(token)[0]
        document = in_document if document is None else min(document, in_document)
    if document is None:
        return None
    here, there = one.document(document), other.document(document)
    common = min(len(here), len(there))
    unequal = np.flatnonzero(here[:common] != there[:common])
    place = int(unequal[0]) if len(unequal) else common
    return Difference(document, place, *(int(ids[place]) if place < len(ids) else None for ids in (here, there)))


def _first_unequal(one: Iterator[npt.NDArray[Any]], other: Iterator[npt.NDArray[Any]]) -> int | None:
    """Number of the first item that is not the same in both; an end of one before the other counts as well."""
    first = 0
    while True:
        here, there = (next(blocks, np.empty(0, np.int8)) for blocks in (one, other))
        common = min(len(here), len(there))
        unequal = np.flatnonzero(here[:common] != there[:common])
        if len(unequal):
            return first + int(unequal[0])
        if len(here) != len(there):
            return first + common
        if not common:
            return None
        first += common


def total_variation(one: Counts, other: Counts) -> float:
    """Share of the whole that is distributed otherwise: half the sum of |p - q|, 0 (same) to 1 (nothing in common)."""
    return float(np.abs(_shares(one, other)).sum() / 2)


def largest_gap(one: Counts, other: Counts) -> float:
    """Kolmogorov and Smirnov's distance: the largest difference of the shares up to a value, 0 to 1."""
    return float(np.abs(np.cumsum(_shares(one, other))).max())


def _shares(one: Counts, other: Counts) -> npt.NDArray[np.float64]:
    """Share of each value in the one less that in the other, over all values of both, ascending."""
    values = np.union1d(one.values, other.values)
    differences = np.zeros(len(values))
    for sign, counts in ((1, one), (-1, other)):
        differences[np.searchsorted(values, counts.values)] += sign * counts.counts / counts.total
    return differences
