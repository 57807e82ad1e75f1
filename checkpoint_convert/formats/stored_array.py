"""Arrays as they are stored, whatever the format: shape, dtype, the pieces they lie in, and reading a part."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_convert.formats.boxes import Box, chunk_parts, shape_of
from checkpoint_convert.formats.byte_ranges import Values, read_box
from checkpoint_convert.formats.chunk_files import chunk_key, require_chunk
from checkpoint_convert.formats.zarr_arrays import TENSORSTORE_FAILS, open_array
from stage.errors import InputError, first_line
from stage.outputs.publish import walked

LARGEST_CHUNK_BYTES = 1 << 30
"""Largest chunk that is decoded, which needs it whole; the benchmark's have 40 MB."""
NUMBERS = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
)
"""Dtypes of a checkpoint's values, as TensorStore calls them."""
RAW_METADATA = {"zarr_format": 2, "compressor": None, "filters": None, "order": "C"}
"""Metadata of a zarr array the files of whose chunks are the values themselves."""
LITTLE_ENDIAN = (*"<|", "bfloat16", "float8")
"""Beginnings of the dtype of such an array."""


@dataclass(frozen=True)
class StoredArray:
    """One array of a checkpoint."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    """Shape of the pieces that are best read whole."""
    on_disk: Callable[[], tuple[int, int]]
    """Returns the bytes of its files, and how many chunk files of a zarr array are missing."""
    read: Callable[[Box], Values]
    """Returns the values of a box. Raises InputError where they cannot be read, as where a chunk has no file."""
    in_part: bool = True
    """Whether a part of a chunk is read without the rest of it."""

    @property
    def pieces(self) -> int:
        """Number of pieces that it lies in; of a zarr array, of files."""
        return math.prod(-(-size // max(chunk, 1)) for size, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def bytes(self) -> int:
        """Bytes of the values, uncompressed."""
        return math.prod(self.shape) * self.dtype.itemsize


def zarr_array(path: Path) -> StoredArray:
    """Open a zarr array. A part of an uncompressed one is read by byte ranges, a part of any other by whole chunks.

    Raises InputError where there is none, its metadata is damaged, or a compressed chunk would take more than 1 GiB.
    """
    opened = open_array(path)
    metadata = opened.spec().to_json()["metadata"]
    if opened.dtype.name not in NUMBERS or not isinstance(metadata["dtype"], str):
        raise InputError(f"{path}: values of {opened.dtype.name}, expected numbers of one of {', '.join(NUMBERS)}")
    shape, chunks = tuple(opened.shape), tuple(opened.chunk_layout.read_chunk.shape or ())
    dtype: np.dtype[Any] = opened.dtype.numpy_dtype
    separator = metadata.get("dimension_separator", ".")
    in_part = all(metadata.get(field) == value for field, value in RAW_METADATA.items())
    in_part = in_part and metadata["dtype"].startswith(LITTLE_ENDIAN)
    if in_part:
        read: Callable[[Box], Values] = _RawChunks(path, shape, chunks, dtype, separator).read
    elif math.prod(chunks) * dtype.itemsize > LARGEST_CHUNK_BYTES:
        raise InputError(f"{path}: chunks of {list(chunks)} {dtype.name}, more than 1 GiB each, cannot be read in part")
    else:
        read = _DecodedChunks(path, chunks, separator, opened).read
    grid = math.prod(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))
    return StoredArray(shape, dtype, chunks, lambda: _on_disk(path, grid), read, in_part)


def _on_disk(path: Path, grid: int) -> tuple[int, int]:
    """Return the bytes of the chunk files, and how many are missing; chunks separated by slashes lie in folders."""
    sizes = [Path(folder, name).stat().st_size for folder, names in walked(path) for name in names if name[0].isdigit()]
    return sum(sizes), grid - len(sizes)


@dataclass(frozen=True)
class _DecodedChunks:
    path: Path
    chunks: tuple[int, ...]
    separator: str
    opened: Any
    """TensorStore's array."""

    def read(self, box: Box) -> Values:
        for chunk in chunk_parts(box, self.chunks):
            require_chunk(self.path / chunk_key(chunk.numbers, self.separator))
        try:
            values: Values = self.opened[box].read().result() if box else self.opened.read().result()
        except TENSORSTORE_FAILS as error:  # what TensorStore raises for a damaged chunk
            reason = first_line(error)
            raise InputError(f"{self.path}: a chunk cannot be read ({reason}); verify the checkpoint") from error
        return values


@dataclass(frozen=True)
class _RawChunks:
    """Reads uncompressed chunks by byte ranges: TensorStore reads them whole, and each of 512 processes wants a 64th of
    the rows of one."""

    path: Path
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    separator: str

    def read(self, box: Box) -> Values:
        values: Values = np.empty(shape_of(box), self.dtype)
        for chunk in chunk_parts(box, self.chunks):
            values[chunk.in_box] = self._chunk(chunk.numbers, chunk.in_chunk)
        return values

    def _chunk(self, numbers: Sequence[int], inside: Box) -> Any:
        path = self.path / chunk_key(numbers, self.separator)
        return read_box(path, 0, self.chunks, self.dtype, inside, alone=True)
