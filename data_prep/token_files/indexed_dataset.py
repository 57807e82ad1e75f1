"""The token dataset: ``PREFIX.bin`` (token ids, nothing else) and ``PREFIX.idx`` (where they lie).

Layout of ``.idx``, little-endian and packed, so the arrays are not aligned (docs/facts/reference.md a.1):

    magic "MMIDIDX\\0\\0" | uint64 version 1 | uint8 dtype code | uint64 sequences S | uint64 D (documents + 1)
    int32 sizes[S] in tokens | int64 pointers[S] in bytes | int64 document_ends[D], starting with 0
"""

import hashlib
import io
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from data_prep.token_files.file_array import FileArray, read_at
from stage.digest import md5_file
from stage.direct_writer import DirectWriter
from stage.errors import InputError
from stage.publish import beside, finish, own_partial_path, remove_left_partials

HEADER = struct.Struct("<9sQBQQ")
MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("i1"),
    3: np.dtype("<i2"),
    4: np.dtype("<i4"),
    5: np.dtype("<i8"),
    6: np.dtype("<f8"),
    7: np.dtype("<f8"),
    8: np.dtype("<u2"),
}
LARGEST_UINT16_VOCABULARY = 65500
BLOCK_DOCUMENTS = 1 << 18
MEND = "make the dataset again"


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The reference's rule (docs/facts/reference.md a.3): uint16 for vocabularies under 65,500 pieces, else int32."""
    return DTYPES[8] if vocab_size < LARGEST_UINT16_VOCABULARY else DTYPES[4]


def bin_path(prefix: Path) -> Path:
    return beside(prefix, ".bin")


def idx_path(prefix: Path) -> Path:
    return beside(prefix, ".idx")


@dataclass(frozen=True)
class Header:
    """What the first bytes of an index say, and where its arrays lie in the file."""

    dtype: np.dtype[Any]
    sequences: int
    num_document_ends: int
    """Documents + 1."""

    @property
    def pointers_at(self) -> int:
        return HEADER.size + 4 * self.sequences

    @property
    def document_ends_at(self) -> int:
        return HEADER.size + 12 * self.sequences


def read_header(prefix: Path) -> Header:
    """Raises InputError when a file is missing, or the index truncated or not in this format."""
    for path in (bin_path(prefix), idx_path(prefix)):
        if not path.is_file():
            raise InputError(f"{path}: no such file; make it with 'python -m data_prep preprocess'")
    path = idx_path(prefix)
    size = path.stat().st_size
    if size < HEADER.size:
        raise InputError(f"{path}: {size} bytes, too short for an index")
    with path.open("rb") as file:
        magic, version, code, sequences, num_document_ends = HEADER.unpack(file.read(HEADER.size))
    if magic != MAGIC or version != VERSION or code not in DTYPES:
        raise InputError(f"{path}: not an MMIDIDX version 1 index (docs/facts/reference.md a.1)")
    expected = HEADER.size + 12 * sequences + 8 * num_document_ends
    if size != expected:
        raise InputError(
            f"{path}: {size} bytes, but its header announces {sequences} sequences and "
            f"{num_document_ends} document ends, which take {expected}; make the file again"
        )
    return Header(DTYPES[code], sequences, num_document_ends)


class IndexedDataset:
    """Read access to ``PREFIX.bin/.idx``.

    ``sizes`` int32 [S]: tokens of each sequence. ``pointers`` int64 [S]: byte offset of each sequence in ``.bin``.
    Both files are read when something of them is asked for (see ``file_array``); nothing of them is held in memory.

    Raises InputError when a file is missing, truncated, or not in this format.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        header = read_header(prefix)
        if header.dtype.kind not in "iu":
            raise InputError(f"{idx_path(prefix)}: holds {header.dtype.name} values, not token ids")
        self.dtype = header.dtype
        index = io.FileIO(idx_path(prefix))
        self.sizes = FileArray(index, "<i4", HEADER.size, (header.sequences,), mend=MEND)
        self.pointers = FileArray(index, "<i8", header.pointers_at, (header.sequences,), mend=MEND)
        self.document_ends = FileArray(index, "<i8", header.document_ends_at, (header.num_document_ends,), mend=MEND)
        self._file = self._open_tokens()
        self._count = os.fstat(self._file.fileno()).st_size // self.dtype.itemsize

    def _open_tokens(self) -> io.FileIO:
        path, itemsize = bin_path(self.prefix), self.dtype.itemsize
        end = int(self.pointers[-1]) + int(self.sizes[-1]) * itemsize if len(self) else 0
        if path.stat().st_size != end:
            raise InputError(
                f"{path}: {path.stat().st_size} bytes, but {idx_path(self.prefix).name} describes {end}; "
                "one of the two is truncated or belongs to another dataset"
            )
        return io.FileIO(path)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def num_tokens(self) -> int:
        """Reads all lengths."""
        return sum(int(sizes.sum(dtype=np.int64)) for sizes in self.sizes.blocks())

    def tokens(self, sequence: int, start: int, stop: int) -> npt.NDArray[Any]:
        """Tokens [start, stop) of one sequence, in the dataset's own dtype.

        Raises InputError where the index says that they lie outside of ``.bin``, and :meth:`require_whole` finds all
        such; also where ``.bin`` was cut since it was opened.
        """
        pointer = int(self.pointers[sequence])
        first, rest = divmod(pointer, self.dtype.itemsize)
        if rest or first < 0 or first + stop > self._count:
            raise InputError(
                f"{idx_path(self.prefix)}: document {sequence} lies at byte {pointer}, tokens {start} to {stop - 1} "
                f"of it outside of {bin_path(self.prefix).name}; make the dataset again"
            )
        tokens = np.empty(max(0, stop - start), self.dtype)
        read_at(self._file, (first + start) * self.dtype.itemsize, tokens.view(np.uint8).data, MEND)
        return tokens

    def require_whole(self) -> None:
        """Raise InputError where a length or a pointer is not what the lengths before it make it. Reads the index."""
        position = 0
        for start in range(0, len(self), BLOCK_DOCUMENTS):
            sizes = self.sizes[start : start + BLOCK_DOCUMENTS]
            ends = position + np.cumsum(sizes, dtype=np.int64) * self.dtype.itemsize
            starts = np.concatenate([[position], ends[:-1]])
            bad = np.flatnonzero((sizes < 0) | (self.pointers[start : start + BLOCK_DOCUMENTS] != starts))
            if len(bad):
                raise InputError(
                    f"{idx_path(self.prefix)}: document {start + bad[0]} has {sizes[bad[0]]} tokens from byte "
                    f"{self.pointers[start + bad[0]]} on, expected byte {starts[bad[0]]}, where the document before "
                    "it ends; make the dataset again"
                )
            position = int(ends[-1])


class IndexedDatasetWriter:
    """Write ``PREFIX.bin/.idx`` document by document (one sequence each, as the reference does).

    Use as a context manager: both files get their final names only when the block ends without an exception. Takes a
    few megabytes of memory, however many documents there are.
    """

    def __init__(
        self, prefix: Path, dtype: np.dtype[Any], before_publishing: Callable[[Mapping[Path, Path]], None] | None = None
    ) -> None:
        """``before_publishing`` is called with the two files as they lie, by their final names; it may raise."""
        self.prefix, self.dtype = prefix, dtype
        self._before_publishing = before_publishing
        self.num_documents = self.num_tokens = 0
        self.bin_md5 = hashlib.md5(usedforsecurity=False)
        self.idx_md5 = ""
        """Hex, once the block has ended."""
        prefix.parent.mkdir(parents=True, exist_ok=True)
        self._partials = {path: own_partial_path(path) for path in (idx_path(prefix), bin_path(prefix))}
        for path in (*self._partials, prefix):
            remove_left_partials(path)
        self._bin = DirectWriter(self._partials[bin_path(prefix)])
        self._idx = self._partials[idx_path(prefix)].open("w+b")
        self._idx.seek(HEADER.size)

    def __enter__(self) -> Self:
        return self

    def add_documents(self, ids: npt.NDArray[np.int64], sizes: Sequence[int]) -> None:
        """Append documents: ``ids`` are their token ids end to end, ``sizes`` their lengths in tokens (all > 0)."""
        limits = np.iinfo(self.dtype)
        if ids.size and not limits.min <= int(ids.min()) <= int(ids.max()) <= limits.max:
            raise InputError(
                f"{bin_path(self.prefix)}: token ids {ids.min()} to {ids.max()} do not fit {self.dtype.name}; "
                "the tokenizer's vocabulary is larger than the dataset was made for"
            )
        self.append(ids.astype(self.dtype), np.asarray(sizes, dtype="<i4"))

    def append(self, ids: npt.NDArray[Any], sizes: npt.NDArray[np.int32]) -> None:
        """Append documents whose ids are in the dataset's dtype already, little-endian."""
        self._bin.write(ids.data)
        self.bin_md5.update(ids.data)
        self._idx.write(sizes.astype("<i4").data)
        self.num_documents += len(sizes)
        self.num_tokens += len(ids)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with closing(self._bin), self._idx:
                if error is None:
                    self._bin.flush()
                    self._complete_index()
            if error is None:
                self._publish()
        finally:
            for partial in self._partials.values():
                partial.unlink(missing_ok=True)

    def _publish(self) -> None:
        self.idx_md5 = md5_file(self._partials[idx_path(self.prefix)])
        if self._before_publishing is not None:
            self._before_publishing(self._partials)
        for path, partial in self._partials.items():
            finish(path, partial)

    def _complete_index(self) -> None:
        """What follows the lengths, and the header before them."""
        self._idx.flush()
        position = 0
        for start in range(0, self.num_documents, BLOCK_DOCUMENTS):
            count = min(BLOCK_DOCUMENTS, self.num_documents - start)
            sizes = np.fromfile(self._partials[idx_path(self.prefix)], "<i4", count, offset=HEADER.size + 4 * start)
            ends = position + np.cumsum(sizes, dtype="<i8") * self.dtype.itemsize
            self._idx.write(np.concatenate([[position], ends[:-1]]).astype("<i8").data)
            position = int(ends[-1])
        for start in range(0, self.num_documents + 1, BLOCK_DOCUMENTS):
            stop = min(start + BLOCK_DOCUMENTS, self.num_documents + 1)
            self._idx.write(np.arange(start, stop, dtype="<i8").data)
        code = next(code for code, dtype in DTYPES.items() if dtype == self.dtype)
        self._idx.seek(0)
        self._idx.write(HEADER.pack(MAGIC, VERSION, code, self.num_documents, self.num_documents + 1))
