"""Reading the arrays of a checkpoint that is converted: whole chunks, with little memory besides, and none missing."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from checkpoint_convert.formats.boxes import Box, chunk_parts
from checkpoint_convert.formats.chunk_files import chunk_key, open_chunk, require_chunk
from checkpoint_convert.formats.zarr_arrays import open_array, read_metadata
from stage.errors import InputError
from stage.publish import walked

DAMAGED: Any = isal_zlib.error
GZIP = 31
"""zlib's name for a window of 2**15 bytes in gzip's format."""
PIECE_BYTES = 1 << 18


class BlockSource(Protocol):
    """An FP32 array to convert."""

    @property
    def path(self) -> Path: ...

    @property
    def chunks(self) -> tuple[int, ...]: ...

    def read(self, box: Box, values: npt.NDArray[np.float32]) -> None:
        """Read a box into ``values``, contiguous. Raises ValueError for a chunk that is damaged, InputError for one
        that is gone or changed, and OSError."""
        ...


@dataclass(frozen=True)
class PlainSource:
    """Chunks that are not compressed, or by gzip: read here, twice as fast as TensorStore does the latter."""

    path: Path
    chunks: tuple[int, ...]
    separator: str
    gzip: bool
    files: SourceFiles
    missing_are_zeros: bool = False

    def read(self, box: Box, values: npt.NDArray[np.float32]) -> None:
        for numbers, in_box, in_chunk in chunk_parts(box, self.chunks):
            wanted = values[in_box]
            if wanted.shape == self.chunks and wanted.flags.c_contiguous:
                self._read_chunk(numbers, wanted)
            else:
                chunk = np.empty(self.chunks, "<f4")
                self._read_chunk(numbers, chunk)
                wanted[...] = chunk[in_chunk]

    def _read_chunk(self, numbers: Sequence[int], chunk: npt.NDArray[np.float32]) -> None:
        key = chunk_key(numbers, self.separator)
        path, name = self.path / key, f"{self.path.name}/{key}"
        if self.missing_are_zeros and not self.files.has(name):
            chunk[...] = 0
            return
        read = _unpack if self.gzip else _read_plain
        try:
            with os.fdopen(open_chunk(path), "rb", buffering=0) as file:
                self.files.require_as_it_was(name, os.fstat(file.fileno()))
                read(file, chunk.reshape(-1).view(np.uint8).data)
                self.files.require_as_it_was(name, os.fstat(file.fileno()))
        except (DAMAGED, ValueError) as error:
            raise ValueError(f"chunk {key}: {error}") from error
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def _read_plain(file: io.FileIO, data: memoryview) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != len(data):
        raise ValueError(f"it has {size} bytes instead of {len(data)}")
    done = 0
    while done < size:
        if not (count := file.readinto(data[done:])):
            raise ValueError("it became shorter while it was read")
        done += count


def _unpack(file: io.FileIO, data: memoryview) -> None:
    """By pieces that stay in the cache."""
    unpacker = isal_zlib.decompressobj(wbits=GZIP)
    done = 0
    while not unpacker.eof and (packed := unpacker.unconsumed_tail or file.read(PIECE_BYTES)):
        piece = unpacker.decompress(packed, max_length=PIECE_BYTES)
        done += len(piece)
        if done > len(data):
            break
        data[done - len(piece) : done] = piece
    if done != len(data) or not unpacker.eof:
        raise ValueError(f"it does not unpack to {len(data)} bytes")


@dataclass(frozen=True)
class StoredSource:
    """Any other chunks, through TensorStore."""

    path: Path
    chunks: tuple[int, ...]
    separator: str
    stored: Any
    files: SourceFiles
    missing_are_zeros: bool = False

    def read(self, box: Box, values: npt.NDArray[np.float32]) -> None:
        self._require_as_they_were(box)
        values[...] = self.stored[box].read().result()
        self._require_as_they_were(box)

    def _require_as_they_were(self, box: Box) -> None:
        for numbers, _, _ in chunk_parts(box, self.chunks):
            key = chunk_key(numbers, self.separator)
            path, name = self.path / key, f"{self.path.name}/{key}"
            if not self.missing_are_zeros or self.files.has(name):
                require_chunk(path)
                self.files.require_as_it_was(name, path.stat())


def open_source(
    path: Path,
    expected: Sequence[int],
    *,
    like: str,
    readers: int,
    files: SourceFiles,
    missing_are_zeros: bool = False,
) -> BlockSource:
    """Open an FP32 array of the expected shape, one of those of ``files``.

    ``missing_are_zeros``: chunks that had no file in the beginning are zeros. Raises InputError for another shape,
    saying it should be ``like``.
    """
    opened = open_array(path, readers=readers, missing_are_zeros=missing_are_zeros)
    if tuple(opened.shape) != tuple(expected):
        raise InputError(f"{path}: shape {list(opened.shape)}, expected {list(expected)} like {like}")
    if opened.dtype.numpy_dtype != np.float32:
        raise InputError(f"{path}: dtype {opened.dtype.name}, expected float32")
    metadata = read_metadata(path)
    chunks = tuple(opened.chunk_layout.read_chunk.shape)
    separator = metadata.get("dimension_separator", ".")
    compressor = (metadata.get("compressor") or {}).get("id")
    plain = (metadata.get("dtype"), metadata.get("order"), metadata.get("filters")) == ("<f4", "C", None)
    if plain and compressor in (None, "gzip") and list(chunks) == metadata["chunks"]:
        return PlainSource(path, chunks, separator, compressor == "gzip", files, missing_are_zeros)
    return StoredSource(path, chunks, separator, opened, files, missing_are_zeros)


def require_chunks(path: Path, kept: Sequence[int], *, mend: str) -> None:
    """Raise InputError for the first chunk within shape ``kept`` that has no file, ending with ``mend``.

    Zarr reads such a chunk as zeros, so a file that was lost would go unnoticed.
    """
    metadata = read_metadata(path)
    separator = metadata.get("dimension_separator", ".")
    counts = [-(-size // chunk) for size, chunk in zip(kept, metadata["chunks"], strict=True)]
    if separator == ".":
        with os.scandir(path) as entries:
            present = {entry.name for entry in entries}
    else:
        present = {os.path.relpath(os.path.join(inner, name), path) for inner, names in walked(path) for name in names}
    for index in np.ndindex(*counts):
        key = separator.join(map(str, index))
        if key not in present:
            raise InputError(f"{path}: chunk {key} is missing; {mend}")
