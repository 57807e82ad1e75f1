"""The FP32 arrays of a checkpoint that is converted, read box by box out of whole chunks.

Chunks that are not compressed, or by gzip, are decoded here, twice as fast as TensorStore does the latter; it decodes
all others.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import tensorstore as ts
from isal import isal_zlib

from checkpoint_convert.conversion.source_files import SourceFiles
from checkpoint_convert.formats.boxes import Box, chunk_parts
from checkpoint_convert.formats.chunk_files import chunk_key
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, absent_chunks_are_zeros, open_array, read_metadata
from stage.errors import InputError

DAMAGED: Any = isal_zlib.error
GZIP = 31
"""zlib's name for a window of 2**15 bytes in gzip's format."""
PIECE_BYTES = 1 << 18
"""Bytes that are unpacked at once: they stay in a core's cache."""
NOT_ZERO = "fetch it again (its fill_value says that it stands for something else than zeros)"

Values = npt.NDArray[np.float32]
Decode = Callable[[BinaryIO, Values], None]
"""Reads a chunk's file into values of its shape, contiguous. Raises ValueError, or isal's error, for a damaged file."""


@dataclass(frozen=True)
class BlockSource:
    """An FP32 array to convert."""

    name: str
    """Its folder in the checkpoint."""
    chunks: tuple[int, ...]
    separator: str
    decode: Decode
    files: SourceFiles
    zero_chunks: int = 0
    """Chunks without a file, which are zeros."""

    @property
    def where(self) -> str:
        """Return its path or address, for messages."""
        return self.files.where(self.name)

    def read(self, box: Box, values: Values) -> None:
        """Read a box into ``values``, contiguous.

        Raises ValueError for a damaged chunk, InputError for one that is gone or changed, and OSError.
        """
        for numbers, in_box, in_chunk in chunk_parts(box, self.chunks):
            wanted = values[in_box]
            if wanted.shape == self.chunks and wanted.flags.c_contiguous:
                self._read_chunk(numbers, wanted)
            else:
                chunk = np.empty(self.chunks, "<f4")
                self._read_chunk(numbers, chunk)
                wanted[...] = chunk[in_chunk]

    def _read_chunk(self, numbers: Sequence[int], chunk: Values) -> None:
        key = chunk_key(numbers, self.separator)
        name = f"{self.name}/{key}"
        if self.zero_chunks and not self.files.has(name):
            chunk[...] = 0
            return
        with self.files.open(name) as file:
            try:
                self.decode(file, chunk)
            except (DAMAGED, ValueError) as error:
                raise ValueError(f"chunk {key}: {error}") from error


def open_source(
    metadata: Path,
    kept: Sequence[int],
    expected: Sequence[int],
    files: SourceFiles,
    *,
    like: str,
    mend: str,
    absent_are_zeros: bool = False,
) -> BlockSource:
    """Open an FP32 array of shape ``expected``, of which the chunks within shape ``kept`` are needed.

    ``metadata``: the local folder with its ``.zarray``, whose name is that of the array in ``files``.
    ``absent_are_zeros``: chunks that had no file in the beginning are zeros, unless the array's fill value says
    otherwise. Raises InputError for another dtype or shape, saying it should be ``like`` what has it, and for a missing
    chunk, ending with ``mend``.
    """
    name, opened, fields = metadata.name, open_array(metadata), read_metadata(metadata)
    where = files.where(name)
    if tuple(opened.shape) != tuple(expected):
        raise InputError(f"{where}: shape {list(opened.shape)}, expected {list(expected)} like {like}")
    if opened.dtype.numpy_dtype != np.float32:
        raise InputError(f"{where}: dtype {opened.dtype.name}, expected float32")
    chunks, separator = tuple(fields["chunks"]), fields.get("dimension_separator", ".")
    absent = [key for key in chunk_keys(kept, chunks, separator) if not files.has(f"{name}/{key}")]
    if absent and not (absent_are_zeros and absent_chunks_are_zeros(metadata)):
        raise InputError(f"{where}: chunk {absent[0]} is missing; {NOT_ZERO if absent_are_zeros else mend}")
    return BlockSource(name, chunks, separator, _decoder(fields), files, len(absent))


def chunk_keys(shape: Sequence[int], chunks: Sequence[int], separator: str) -> Iterator[str]:
    """Yield the keys of all chunks within ``shape``."""
    for numbers in np.ndindex(*(-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True))):
        yield chunk_key(numbers, separator)


def _decoder(metadata: Mapping[str, Any]) -> Decode:
    compressor = (metadata.get("compressor") or {}).get("id")
    plain = (metadata.get("dtype"), metadata.get("order"), metadata.get("filters")) == ("<f4", "C", None)
    if plain and compressor is None:
        return _read_plain
    if plain and compressor == "gzip":
        return _unpack
    return lambda file, chunk: _decode_by_tensorstore(metadata, file, chunk)


def _read_plain(file: BinaryIO, chunk: Values) -> None:
    data = chunk.reshape(-1).view(np.uint8).data
    size = file.seek(0, io.SEEK_END)
    if size != len(data):
        raise ValueError(f"it has {size} bytes instead of {len(data)}")
    file.seek(0)
    done = 0
    while done < size:
        if not (count := file.readinto(data[done:])):  # type: ignore[attr-defined]  # every binary file has it
            raise ValueError("it became shorter while it was read")
        done += count


def _unpack(file: BinaryIO, chunk: Values) -> None:
    data = chunk.reshape(-1).view(np.uint8).data
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


def _decode_by_tensorstore(metadata: Mapping[str, Any], file: BinaryIO, chunk: Values) -> None:
    """Decode by an array of this one chunk, in memory."""
    context = ts.Context()
    store = ts.KvStore.open({"driver": "memory"}, context=context).result()
    store.write(METADATA_FILE, json.dumps({**metadata, "shape": list(chunk.shape)}).encode()).result()
    store.write(chunk_key([0] * chunk.ndim, metadata.get("dimension_separator", ".")), file.read()).result()
    array = ts.open({"driver": "zarr", "kvstore": "memory://"}, context=context, open=True).result()
    chunk[...] = array.read().result()
