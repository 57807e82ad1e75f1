"""Arrays as they are stored, whatever the format: shape, dtype, the pieces they lie in, and reading a part."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoint_convert.formats.boxes import Box, shape_of
from checkpoint_convert.formats.byte_ranges import Values


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


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape for a person: 96x12288."""
    return "x".join(map(str, shape)) or "scalar"


def stacked(layers: Sequence[StoredArray]) -> StoredArray:
    """Return arrays of one shape and dtype as one array, along a new first axis."""
    first = layers[0]

    def read(box: Box) -> Values:
        values = np.empty(shape_of(box), first.dtype)
        for at, layer in enumerate(layers[box[0]]):
            values[at] = layer.read(box[1:])
        return values

    def on_disk() -> tuple[int, int]:
        found = [layer.on_disk() for layer in layers]
        return sum(size for size, _ in found), sum(missing for _, missing in found)

    return StoredArray((len(layers), *first.shape), first.dtype, (1, *first.chunks), on_disk, read, first.in_part)
