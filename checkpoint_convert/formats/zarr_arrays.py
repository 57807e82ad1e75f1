"""Zarr v2 arrays, one per folder: read their metadata, and their values from the files of whole chunks.

Zarr reads a chunk without a file as its fill value. Neither PAXML nor the reference's converter leaves a chunk out, so
a missing one was lost. Uncompressed chunks are read in place, those of gzip are unpacked here, twice as fast as by
TensorStore, which decodes all others and interprets the metadata.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import tensorstore as ts
from isal import isal_zlib

from checkpoint_convert.formats.boxes import Box, chunk_parts, shape_of
from checkpoint_convert.formats.source_files import LocalFiles, SourceFiles
from checkpoint_convert.formats.stored_array import MEND, StoredArray, Values, part_of, read_box
from foundation.errors import InputError, first_line
from foundation.outputs.publish import walked
from foundation.sizes import require_array

METADATA_FILE = ".zarray"
LARGEST_METADATA_FILE = 1 << 20
"""Most bytes of a metadata file; those of the benchmark's checkpoint have some 300."""
LARGEST_ITEM = 16
"""Most bytes of a value, including complex ones."""
DTYPES = {"float32": "<f4", "bfloat16": "bfloat16", "int32": "<i4", "uint32": "<u4"}
"""Dtypes of arrays that can be written."""
NUMBERS = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
)
"""Dtypes of a checkpoint's values, by TensorStore's names."""
LITTLE_ENDIAN = (*"<|", "bfloat16", "float8")
"""Prefixes of the dtypes whose values have the same bytes in the files as in NumPy's memory."""
TENSORSTORE_FAILS: tuple[type[Exception], ...] = (ValueError, NotImplementedError)
"""TensorStore's errors: NotImplementedError comes if a file system reports "not implemented" (ENOSYS)."""
DAMAGED: Any = (isal_zlib.error, *TENSORSTORE_FAILS)
GZIP_WINDOW = 31
"""zlib's name for a window of 2**15 bytes in gzip's format."""
STEP_BYTES = 1 << 18
"""Bytes that are unpacked at once: they stay in a core's cache."""


@dataclass(frozen=True)
class ZarrArray(StoredArray):
    """An array that exists; its values are read on demand."""

    files: SourceFiles
    name: str
    """Name of the array's folder in the checkpoint."""
    metadata: Mapping[str, Any]
    """Fields of ``.zarray``, including optional ones."""
    absent_are_zeros: bool = False
    """True if chunks without a file, when they were asked for, are read as zeros."""

    @property
    def where(self) -> str:
        """Return the array's path or address, for messages."""
        return self.files.where(self.name)

    @property
    def in_order(self) -> bool:
        """True if a chunk's file, once unpacked, has the values in their order in memory."""
        fields = self.metadata
        return fields["filters"] is None and fields["order"] == "C" and fields["dtype"].startswith(LITTLE_ENDIAN)

    @property
    def in_part(self) -> bool:
        return self.in_order and self.metadata["compressor"] is None

    def keys_within(self, shape: Sequence[int]) -> Iterator[str]:
        """Yield the keys, names of files, of all chunks within ``shape``."""
        counts = (-(-size // chunk) for size, chunk in zip(shape, self.chunks, strict=True))
        return map(self._key, np.ndindex(*counts))

    def _key(self, numbers: Sequence[int]) -> str:
        """Return the key of a chunk; the only chunk of an array without axes is called 0."""
        return str(self.metadata.get("dimension_separator", ".")).join(map(str, numbers)) or "0"

    def read(self, box: Box, into: Values | None = None) -> Values:
        """Read a box ``into`` an array of its shape (None: a new one).

        Raises InputError for a chunk that is missing, damaged or has changed, and OSError.
        """
        values = np.empty(shape_of(box), self.dtype) if into is None else into
        for numbers, in_box, in_chunk in chunk_parts(box, self.chunks):
            key, target = self._key(numbers), part_of(values, in_box)
            name = f"{self.name}/{key}"
            if self.absent_are_zeros and not self.files.has(name):
                target[...] = 0
                continue
            try:
                with self.files.open(name) as file:
                    self._read_chunk(file, target, in_chunk)
            except FileNotFoundError as error:
                raise InputError(f"{self.where}: chunk {key} is missing; {MEND}") from error
            except DAMAGED as error:
                raise InputError(f"{self.where}: chunk {key} cannot be read ({first_line(error)}); {MEND}") from error
        return values

    def _read_chunk(self, file: BinaryIO, target: Values, box: Box) -> None:
        if self.in_part:
            size, expected = file.seek(0, os.SEEK_END), math.prod(self.chunks) * self.dtype.itemsize
            if size != expected:
                raise ValueError(f"it has {size} bytes instead of {expected}")
            read_box(file, 0, self.chunks, box, target)
            return
        is_whole = target.shape == self.chunks and target.flags.c_contiguous
        chunk = target if is_whole else np.empty(self.chunks, self.dtype)
        if self.in_order and self.metadata["compressor"]["id"] == "gzip":
            _unpack(file, chunk)
        else:
            chunk[...] = _in_memory({**self.metadata, "shape": self.chunks}, file.read()).read().result()
        if not is_whole:
            target[...] = chunk[box]

    @property
    def missing_chunks(self) -> int:
        below = walked(Path(self.where))  # chunks separated by slashes lie in folders
        return self.chunk_count - sum(name[0].isdigit() for _, names in below for name in names)


def open_zarr(files: SourceFiles, name: str) -> ZarrArray:
    """Open the array in the folder ``name``.

    Raises InputError if there is none, its metadata is damaged or describes an impossible array, or its values are no
    numbers.
    """
    where, fields = files.where(name), _read_fields(files, name)
    shape, chunks = fields.get("shape"), fields.get("chunks")
    if not isinstance(shape, list) or not isinstance(chunks, list):
        raise InputError(f"{where}: not a zarr array ({METADATA_FILE} has no shape and chunks); {MEND}")
    require_array(where, shape, LARGEST_ITEM, mend=MEND)
    require_array(where, chunks, LARGEST_ITEM, mend=MEND)
    if len(shape) != len(chunks) or 0 in chunks:
        raise InputError(f"{where}: shape {shape} and chunks {chunks} do not go together; {MEND}")
    try:
        opened = _in_memory(fields)
    except TENSORSTORE_FAILS as error:
        raise InputError(f"{where}: not a zarr array ({first_line(error)[:200]})") from error
    if opened.dtype.name not in NUMBERS or not isinstance(fields["dtype"], str):
        raise InputError(f"{where}: values of {opened.dtype.name}, expected numbers of one of {', '.join(NUMBERS)}")
    metadata = {"filters": None, "order": "C", **opened.spec().to_json()["metadata"]}
    return ZarrArray(tuple(shape), opened.dtype.numpy_dtype, tuple(chunks), files, name, metadata)


def zarr_array(path: Path) -> ZarrArray:
    """Open a zarr array on a disk as :func:`open_zarr` does."""
    return open_zarr(LocalFiles(path.parent), path.name)


def _read_fields(files: SourceFiles, name: str) -> dict[str, Any]:
    where = files.where(f"{name}/{METADATA_FILE}")
    try:
        with files.open(f"{name}/{METADATA_FILE}") as file:
            content = file.read(LARGEST_METADATA_FILE + 1)
        if len(content) > LARGEST_METADATA_FILE:
            raise InputError(f"{where}: more than {LARGEST_METADATA_FILE:,} bytes; {MEND}")
        return msgspec.json.decode(content, type=dict[str, Any])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{files.where(name)}: array is missing (no {METADATA_FILE} in it)") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: {error}; {MEND}") from error


def _in_memory(metadata: Mapping[str, Any], chunk: bytes | None = None) -> Any:
    """Return TensorStore's in-memory array with such metadata; ``chunk`` is the file of its only chunk."""
    context = ts.Context()
    store = ts.KvStore.open({"driver": "memory"}, context=context).result()
    store.write(METADATA_FILE, json.dumps(metadata).encode()).result()
    if chunk is not None:
        separator = metadata.get("dimension_separator", ".")
        store.write(separator.join("0" for _ in metadata["chunks"]) or "0", chunk).result()
    return ts.open({"driver": "zarr", "kvstore": "memory://"}, context=context, open=True).result()


def _unpack(file: BinaryIO, chunk: Values) -> None:
    data = chunk.reshape(-1).view(np.uint8).data
    unpacker = isal_zlib.decompressobj(wbits=GZIP_WINDOW)
    done = 0
    while not unpacker.eof and (packed := unpacker.unconsumed_tail or file.read(STEP_BYTES)):
        block = unpacker.decompress(packed, max_length=STEP_BYTES)
        done += len(block)
        if done > len(data):
            break
        data[done - len(block) : done] = block
    if done != len(data) or not unpacker.eof or unpacker.unused_data or file.read(1):
        raise ValueError(f"it does not unpack to {len(data)} bytes, or more bytes follow")


def create_array(
    path: Path, shape: Sequence[int], dtype: str, chunks: Sequence[int], compressor: dict[str, Any] | None = None
) -> Any:
    """Create an array on a disk with TensorStore, or open the same existing one; ``dtype`` is one of DTYPES."""
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": os.path.realpath(path)},  # TensorStore refuses "../x"
        "context": {"file_io_sync": False},  # whoever publishes the folder syncs it once
        "metadata": _metadata(shape, dtype, chunks, compressor),
    }
    return ts.open(spec, create=True, open=True).result()


def metadata_text(shape: Sequence[int], dtype: str, chunks: Sequence[int]) -> bytes:
    """Return the bytes that TensorStore writes into the ``.zarray`` of an uncompressed array."""
    spec = {"driver": "zarr", "kvstore": "memory://a/", "metadata": _metadata(shape, dtype, chunks)}
    opened: Any = ts.open(spec, create=True).result()
    content: bytes = opened.kvstore.read(METADATA_FILE).result().value
    return content


def _metadata(
    shape: Sequence[int], dtype: str, chunks: Sequence[int], compressor: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"dtype": DTYPES[dtype], "shape": list(shape), "chunks": list(chunks), "compressor": compressor}
