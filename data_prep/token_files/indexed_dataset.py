"""The token dataset: ``PREFIX.bin`` (token ids, nothing else) and ``PREFIX.idx`` (where they lie).

Layout of ``.idx``, little-endian and packed, so the arrays are not aligned (docs/facts/reference.md a.1):

    magic "MMIDIDX\\0\\0" | uint64 version 1 | uint8 dtype code | uint64 sequences S | uint64 D (documents + 1)
    int32 sizes[S] in tokens | int64 pointers[S] in bytes | int64 document_ends[D], starting with 0
"""

import hashlib
import io
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from data_prep.token_files.file_array import FileArray
from foundation.disk_answers import file_is_there
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from foundation.outputs.publish import sibling

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
LLAMA31_NAMES = ("c4-train.en_", "c4-validation-91205-samples.en_")
"""Beginnings of the names of Llama 3.1's published token files, which no tokenizer makes again."""
MAKE = "make it with 'python -m data_prep preprocess'"
MEND = "make the dataset again"


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the dtype that the reference chooses (docs/facts/reference.md a.3): uint16 for vocabularies under 65,500
    pieces, else int32."""
    return DTYPES[8] if vocab_size < LARGEST_UINT16_VOCABULARY else DTYPES[4]


def bin_path(prefix: Path) -> Path:
    return sibling(prefix, ".bin")


def idx_path(prefix: Path) -> Path:
    return sibling(prefix, ".idx")


def read_header(path: Path) -> tuple[np.dtype[Any], int, int]:
    """Return dtype, number of sequences and number of document ends of an ``.idx`` file.

    Raises InputError if the index does not hold token ids in this format, or its size is not the one that its header
    announces: impossible numbers are refused before memory is taken for them.
    """
    size = path.stat().st_size
    if size < HEADER.size:
        raise InputError(f"{path}: {size} bytes, too short for an index")
    with path.open("rb") as file:
        magic, version, code, sequences, document_ends = HEADER.unpack(file.read(HEADER.size))
    if magic != MAGIC or version != VERSION or code not in DTYPES:
        raise InputError(f"{path}: not an MMIDIDX version 1 index (docs/facts/reference.md a.1)")
    expected = HEADER.size + 12 * sequences + 8 * document_ends
    if size != expected:
        raise InputError(
            f"{path}: {size} bytes, but its header announces {sequences} sequences and "
            f"{document_ends} document ends, which take {expected}; make the file again"
        )
    if DTYPES[code].kind not in "iu":
        raise InputError(f"{path}: holds {DTYPES[code].name} values, not token ids")
    return DTYPES[code], sequences, document_ends


class IndexedDataset:
    """Read access to ``PREFIX.bin/.idx``: arrays in files, whose parts are read on demand.

    ``sizes`` int32 [S]: tokens of each document. ``pointers`` int64 [S]: byte offset of each document in ``.bin``.
    ``document_ends`` int64 [D]. ``ids`` [T]: the tokens of all documents, end to end, in ``dtype``.
    """

    def __init__(self, prefix: Path, *, any_size: bool = False) -> None:
        """Open both files. ``any_size`` allows a ``.bin`` of another size than the index describes, to examine damage.

        Raises InputError if a file is missing, in the cases of :func:`read_header`, and for such a size.
        """
        self.prefix = prefix
        for path in (bin_path(prefix), idx_path(prefix)):
            if not file_is_there(path):
                published = path.name.startswith(LLAMA31_NAMES)
                how = "get it with 'python -m data_prep fetch --what llama31-dataset'" if published else MAKE
                if prefix.suffix in (".bin", ".idx") and file_is_there(prefix):
                    how = f"give the prefix {prefix.with_suffix('')}, without {prefix.suffix}"
                raise InputError(f"{path}: no such file; {how}")
        self.dtype, sequences, document_ends = read_header(idx_path(prefix))
        index, tokens = io.FileIO(idx_path(prefix)), io.FileIO(bin_path(prefix))
        self.sizes = FileArray(index, "<i4", HEADER.size, (sequences,), mend=MEND)
        self.pointers = FileArray(index, "<i8", HEADER.size + 4 * sequences, (sequences,), mend=MEND)
        self.document_ends = FileArray(index, "<i8", HEADER.size + 12 * sequences, (document_ends,), mend=MEND)
        self.bin_bytes = os.fstat(tokens.fileno()).st_size
        self.ids = FileArray(tokens, self.dtype, 0, (self.bin_bytes // self.dtype.itemsize,), mend=MEND)
        if not any_size and self.bin_bytes != self.described_bytes:
            raise InputError(
                f"{bin_path(prefix)}: {self.bin_bytes} bytes, but {idx_path(prefix).name} describes "
                f"{self.described_bytes}; one of the two is truncated or belongs to another dataset"
            )

    @property
    def described_bytes(self) -> int:
        """Size that ``.bin`` should have: the end of the last document."""
        return int(self.pointers[-1]) + int(self.sizes[-1]) * self.dtype.itemsize if len(self) else 0

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def num_tokens(self) -> int:
        """Number of tokens, from the lengths of all documents, which are read."""
        return sum(int(sizes.sum(dtype=np.int64)) for sizes in self.sizes.blocks())

    def tokens(self, document: int, start: int, stop: int) -> npt.NDArray[Any]:
        """Return tokens [start, stop) of one document, in the dataset's own dtype.

        Raises InputError if the index places them outside of ``.bin``, or ``.bin`` was cut since it was opened.
        """
        pointer = int(self.pointers[document])
        first, odd_bytes = divmod(pointer, self.dtype.itemsize)
        if odd_bytes or first < 0 or first + stop > len(self.ids):
            raise InputError(
                f"{idx_path(self.prefix)}: document {document} lies at byte {pointer}, tokens {start} to {stop - 1} "
                f"of it outside of {bin_path(self.prefix).name}; make the dataset again"
            )
        return self.ids[first + start : first + stop]

    def misplaced_document(self, *, least_tokens: int) -> str | None:
        """Describe the first document that has fewer than ``least_tokens`` tokens or does not begin at the end of the
        one before.

        Returns None if there is none. Reads all lengths and pointers.
        """
        position = 0
        for start in range(0, len(self), BLOCK_DOCUMENTS):
            sizes, pointers = (array[start : start + BLOCK_DOCUMENTS] for array in (self.sizes, self.pointers))
            byte_ends = position + np.cumsum(sizes, dtype=np.int64) * self.dtype.itemsize
            starts = np.concatenate([[position], byte_ends[:-1]])
            misplaced = np.flatnonzero((sizes < least_tokens) | (pointers != starts))
            if len(misplaced):
                document = misplaced[0]
                return (
                    f"document {start + document} has {sizes[document]} tokens from byte {pointers[document]} on, "
                    f"expected {least_tokens} or more from byte {starts[document]} on, where the document before it "
                    "ends"
                )
            position = int(byte_ends[-1])
        return None

    def require_whole(self) -> None:
        """Raise InputError if a length or a pointer does not follow from the lengths before it. Reads the index."""
        if problem := self.misplaced_document(least_tokens=0):
            raise InputError(f"{idx_path(self.prefix)}: {problem}; make the dataset again")


class IndexedDatasetWriter:
    """Write ``PREFIX.bin/.idx`` document by document (one sequence each, as the reference does).

    Use as a context manager: the files are whole when the block has ended, and removed if it ends with an exception.
    The writer takes a few megabytes of memory, however many documents there are.
    """

    def __init__(self, prefix: Path, dtype: np.dtype[Any]) -> None:
        self.prefix, self.dtype = prefix, dtype
        self.num_documents = self.num_tokens = 0
        self.bin_md5 = hashlib.md5(usedforsecurity=False)
        """MD5 of all tokens added so far."""
        self.idx_md5 = ""
        """MD5 of the index in hexadecimal, once the block has ended."""

    def __enter__(self) -> Self:
        self._bin, self._idx = bin_path(self.prefix).open("wb"), idx_path(self.prefix).open("wb")
        self._idx.seek(HEADER.size)
        return self

    def append(self, ids: npt.NDArray[Any], sizes: npt.ArrayLike) -> None:
        """Append documents: ``ids`` are their token ids end to end, ``sizes`` their lengths in tokens (all > 0); either
        may come without the other. Raises InputError for an id that the dtype cannot hold."""
        limits = np.iinfo(self.dtype)
        if ids.dtype != self.dtype and ids.size and not limits.min <= ids.min() <= ids.max() <= limits.max:
            raise InputError(
                f"{bin_path(self.prefix)}: token ids {ids.min()} to {ids.max()} do not fit {self.dtype.name}; "
                "the tokenizer's vocabulary is larger than the dataset was made for"
            )
        tokens, lengths = ids.astype(self.dtype, copy=False).data, np.asarray(sizes, "<i4")
        self._bin.write(tokens)
        self.bin_md5.update(tokens)
        self._idx.write(lengths.data)
        self.num_documents += len(lengths)
        self.num_tokens += len(ids)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._bin, self._idx:
            if kind is None:
                self._complete_index()
        if kind is not None:
            bin_path(self.prefix).unlink()
            idx_path(self.prefix).unlink()

    def _complete_index(self) -> None:
        """Write the arrays after the lengths, and the header before them."""
        self._idx.flush()
        position = 0
        for start in range(0, self.num_documents, BLOCK_DOCUMENTS):
            count = min(BLOCK_DOCUMENTS, self.num_documents - start)
            sizes = np.fromfile(idx_path(self.prefix), "<i4", count, offset=HEADER.size + 4 * start)
            byte_ends = position + np.cumsum(sizes, dtype="<i8") * self.dtype.itemsize
            self._idx.write(np.concatenate([[position], byte_ends[:-1]]).astype("<i8").data)
            position = int(byte_ends[-1])
        for start in range(0, self.num_documents + 1, BLOCK_DOCUMENTS):
            stop = min(start + BLOCK_DOCUMENTS, self.num_documents + 1)
            self._idx.write(np.arange(start, stop, dtype="<i8").data)
        code = next(code for code, dtype in DTYPES.items() if dtype == self.dtype)
        self._idx.seek(0)
        self._idx.write(HEADER.pack(MAGIC, VERSION, code, self.num_documents, self.num_documents + 1))
        self._idx.flush()
        self.idx_md5 = md5_file(idx_path(self.prefix))
