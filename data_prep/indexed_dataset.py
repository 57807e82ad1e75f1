"""The memory-mapped token dataset: ``PREFIX.bin`` (token ids, nothing else) and ``PREFIX.idx`` (where they lie).

Layout of ``.idx``, little-endian and packed, so the arrays are not aligned (reference facts a.1):

    magic "MMIDIDX\\0\\0" | uint64 version 1 | uint8 dtype code | uint64 sequences S | uint64 D (documents + 1)
    int32 sizes[S] in tokens | int64 pointers[S] in bytes | int64 document_ends[D], starting with 0
"""

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from stage.errors import InputError
from stage.publish import finish, partial_path, published_file

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


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The reference's rule (facts a.3): uint16 for vocabularies under 65,500 pieces, else int32."""
    return DTYPES[8] if vocab_size < LARGEST_UINT16_VOCABULARY else DTYPES[4]


def bin_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".bin")


def idx_path(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".idx")


class IndexedDataset:
    """Read access to ``PREFIX.bin/.idx``.

    ``sizes`` int32 [S]: tokens of each sequence. ``pointers`` int64 [S]: byte offset of each sequence in ``.bin``.
    Raises InputError when a file is missing, truncated, or not in this format.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        for path in (bin_path(prefix), idx_path(prefix)):
            if not path.is_file():
                raise InputError(f"{path}: no such file; make it with 'python -m data_prep preprocess'")
        index = np.memmap(idx_path(prefix), dtype=np.uint8, mode="r")
        if index.size < HEADER.size:
            raise InputError(f"{idx_path(prefix)}: {index.size} bytes, too short for an index")
        magic, version, code, num_sequences, num_document_ends = HEADER.unpack(index[: HEADER.size].tobytes())
        if magic != MAGIC or version != VERSION or code not in DTYPES:
            raise InputError(f"{idx_path(prefix)}: not an MMIDIDX version 1 index (reference facts a.1)")
        expected = HEADER.size + 12 * num_sequences + 8 * num_document_ends
        if index.size != expected:
            raise InputError(
                f"{idx_path(prefix)}: {index.size} bytes, but its header announces {num_sequences} sequences and "
                f"{num_document_ends} document ends, which take {expected}; make the file again"
            )
        self.dtype = DTYPES[code]
        self.sizes: npt.NDArray[np.int32] = _array(index, "<i4", HEADER.size, num_sequences)
        self.pointers: npt.NDArray[np.int64] = _array(index, "<i8", HEADER.size + 4 * num_sequences, num_sequences)
        self.document_ends: npt.NDArray[np.int64] = _array(
            index, "<i8", HEADER.size + 12 * num_sequences, num_document_ends
        )
        self._tokens = self._map_tokens()

    def _map_tokens(self) -> npt.NDArray[Any]:
        path, itemsize = bin_path(self.prefix), self.dtype.itemsize
        end = int(self.pointers[-1]) + int(self.sizes[-1]) * itemsize if len(self) else 0
        if path.stat().st_size != end:
            raise InputError(
                f"{path}: {path.stat().st_size} bytes, but {idx_path(self.prefix).name} describes {end}; "
                "one of the two is truncated or belongs to another dataset"
            )
        return np.memmap(path, dtype=self.dtype, mode="r") if end else np.empty(0, self.dtype)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def num_tokens(self) -> int:
        return int(self.sizes.sum(dtype=np.int64))

    def tokens(self, sequence: int, start: int, stop: int) -> npt.NDArray[Any]:
        """Tokens [start, stop) of one sequence, in the dataset's own dtype."""
        first = int(self.pointers[sequence]) // self.dtype.itemsize
        return self._tokens[first + start : first + stop]


def _array(index: npt.NDArray[np.uint8], dtype: str, offset: int, count: int) -> npt.NDArray[Any]:
    """View of ``count`` unaligned items; no copy is made."""
    kind = np.dtype(dtype)
    return index[offset : offset + count * kind.itemsize].view(kind)


class IndexedDatasetWriter:
    """Write ``PREFIX.bin/.idx`` document by document (one sequence each, as the reference does).

    Use as a context manager: both files get their final names only when the block ends without an exception.
    """

    def __init__(self, prefix: Path, dtype: np.dtype[Any]) -> None:
        self.prefix, self.dtype = prefix, dtype
        self.num_tokens = 0
        self.bin_md5 = hashlib.md5(usedforsecurity=False)
        self.idx_md5 = hashlib.md5(usedforsecurity=False)
        self._sizes: list[npt.NDArray[np.int32]] = []
        prefix.parent.mkdir(parents=True, exist_ok=True)
        self._bin = partial_path(bin_path(prefix)).open("wb")

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
        block = ids.astype(self.dtype).tobytes()
        self._bin.write(block)
        self.bin_md5.update(block)
        self._sizes.append(np.asarray(sizes, dtype="<i4"))
        self.num_tokens += ids.size

    @property
    def num_documents(self) -> int:
        return sum(len(sizes) for sizes in self._sizes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bin.close()
        if error is not None:
            partial_path(bin_path(self.prefix)).unlink(missing_ok=True)
            return
        sizes = np.concatenate(self._sizes) if self._sizes else np.empty(0, "<i4")
        ends = np.cumsum(sizes, dtype="<i8") * self.dtype.itemsize
        code = next(code for code, dtype in DTYPES.items() if dtype == self.dtype)
        header = HEADER.pack(MAGIC, VERSION, code, len(sizes), len(sizes) + 1)
        parts = (header, sizes, np.concatenate([[0], ends[:-1]]) if len(ends) else ends, np.arange(len(sizes) + 1))
        with published_file(idx_path(self.prefix)) as partial, partial.open("wb") as file:
            for part in parts:
                block = part if isinstance(part, bytes) else part.astype(part.dtype.newbyteorder("<")).tobytes()
                file.write(block)
                self.idx_md5.update(block)
        finish(bin_path(self.prefix))
