"""PyTorch's distributed checkpoints (DCP) without running what a stranger may have put into them.

``.metadata`` is a pickle, read by ``dcp_metadata``. The shards in the ``.distcp`` files are ``torch.save`` archives,
whose own small pickle PyTorch reads with ``weights_only``, or safetensors streams. Values are read in place, by byte
ranges.
"""

import gc
import io
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from checkpoint_convert.formats.boxes import Box, items_in, overlap, relative, shape_of
from checkpoint_convert.formats.byte_ranges import Values, read_box
from checkpoint_convert.formats.safetensors_arrays import arrays_in_file
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.torch_files.dcp_metadata import DTYPES, read_metadata
from stage.errors import InputError, first_line

METADATA = ".metadata"
LOCAL_HEADER = 30
"""Bytes of a zip entry's header before its name, whose length is in the last four (PKWARE's APPNOTE 4.3.7)."""


@dataclass(frozen=True)
class DcpShard:
    """A part of an array, in one range of one file."""

    box: Box
    path: Path
    offset: int
    length: int
    """In bytes, of the archive or stream that holds the values."""


def dcp_arrays(folder: Path) -> dict[str, StoredArray]:
    """The tensors of a distributed checkpoint; what else is in it is left alone.

    Raises InputError where ``.metadata`` is damaged, names anything but DCP's own classes, or describes shards that do
    not make up their arrays.
    """
    with _no_garbage_collection():
        metadata = read_metadata(folder / METADATA)
        try:
            shards = _shards_by_name(folder, metadata)
            entries = metadata.state_dict_metadata.items()
            return {
                name: _array(name, entry, shards.get(name, {})) for name, entry in entries if hasattr(entry, "chunks")
            }
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise InputError(f"{folder / METADATA}: not the metadata of a distributed checkpoint ({error})") from error


def stored_object(folder: Path, key: str, largest: int) -> bytes | None:
    """The bytes of what is no tensor, as they are stored; None where there is nothing under ``key``.

    Raises InputError where ``.metadata`` is damaged, or they are more than ``largest`` or not there.
    """
    with _no_garbage_collection():
        metadata = read_metadata(folder / METADATA)
        try:
            found = [info for index, info in metadata.storage_data.items() if index.fqn == key]
            if not found:
                return None
            offset, length = _numbers([found[0].offset, found[0].length])
            path = folder / _file_name(found[0])
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise InputError(f"{folder / METADATA}: not the metadata of a distributed checkpoint ({error})") from error
    if length > largest or not path.is_file() or path.stat().st_size < offset + length:
        raise InputError(f"{path}: missing, shorter than the checkpoint's metadata says, or {key} is too large")
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Of the million objects of a large model's metadata none is garbage; searching them took a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _shards_by_name(folder: Path, metadata: Any) -> dict[str, dict[tuple[int, ...], tuple[Path, int, int]]]:
    """File, offset and length of each shard, by array and by the place of its first value."""
    found: dict[str, dict[tuple[int, ...], tuple[Path, int, int]]] = {}
    paths: dict[str, Path] = {}
    for index, info in metadata.storage_data.items():
        if not hasattr(index, "offset") or index.offset is None:  # not a tensor
            continue
        name = _file_name(info)
        if getattr(info, "transform_descriptors", None):
            raise ValueError(f"{index.fqn} is stored transformed, which is not read here")
        path = paths[name] = paths.get(name) or folder / name
        found.setdefault(index.fqn, {})[_numbers(index.offset)] = (path, *_numbers([info.offset, info.length]))
    return found


def _file_name(info: Any) -> str:
    name = str(info.relative_path)
    if name in ("", ".", "..") or "/" in name:
        raise ValueError(f"a shard in {name!r}, outside the folder")
    return name


def _numbers(values: Sequence[Any]) -> tuple[Any, ...]:
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{values}: expected numbers of 0 or more")
    return tuple(values)


def _array(name: str, entry: Any, stored: Mapping[tuple[int, ...], tuple[Path, int, int]]) -> StoredArray:
    dtype_name, *_ = entry.properties.state
    if dtype_name not in DTYPES:
        raise ValueError(f"{name}: a dtype that is not read here")
    dtype, shape = DTYPES[dtype_name], _numbers(entry.size)
    shards = []
    for chunk in entry.chunks:
        offsets, sizes = _numbers(chunk.offsets), _numbers(chunk.sizes)
        box = tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))
        if any(part.stop > size for part, size in zip(box, shape, strict=True)):
            raise ValueError(f"{name}: a shard reaches beyond its shape {list(shape)}")
        if math.prod(sizes):
            shards.append(DcpShard(box, *stored[offsets]))
    if sum(items_in(shard.box) for shard in shards) != math.prod(shape):
        raise ValueError(f"{name}: its shards do not make up its shape {list(shape)}")
    largest = max((shape_of(shard.box) for shard in shards), key=math.prod, default=shape)
    length = sum(shard.length for shard in shards)
    return StoredArray(shape, dtype, largest, lambda: (length, 0), _Reader(name, dtype, shards).read)


class _Reader:
    """Reads boxes of one array; where a shard's values begin is looked up once."""

    def __init__(self, name: str, dtype: np.dtype[Any], shards: Sequence[DcpShard]) -> None:
        self._name, self._dtype, self._shards = name, dtype, shards
        self._reads: dict[tuple[Path, int], Callable[[Box], Values]] = {}

    def read(self, box: Box) -> Values:
        values = np.zeros(shape_of(box), self._dtype)
        filled = 0
        for shard in self._shards:
            common = overlap(box, shard.box)
            if common is None:
                continue
            target = relative(common, box)
            key = shard.path, shard.offset
            if key not in self._reads:
                self._reads[key] = open_shard(shard, self._dtype)
            values[target] = self._reads[key](relative(common, shard.box))
            filled += values[target].size
        if filled != values.size:
            raise InputError(f"{self._name}: its shards overlap and leave gaps; the checkpoint is damaged")
        return values


def open_shard(shard: DcpShard, dtype: np.dtype[Any]) -> Callable[[Box], Values]:
    """What reads boxes of a shard. Raises InputError where the file holds something else in its place."""
    shape = shape_of(shard.box)
    if not shard.path.is_file() or shard.path.stat().st_size < shard.offset + shard.length:
        raise InputError(f"{shard.path}: missing, or shorter than the checkpoint's metadata says")
    with shard.path.open("rb") as file:
        file.seek(shard.offset)
        is_zip = file.read(2) == b"PK"
    if not is_zip:
        arrays = list(arrays_in_file(shard.path, shard.offset, shard.length).values())
        if [(array.shape, array.dtype) for array in arrays] != [(shape, dtype)]:
            raise InputError(f"{shard.path}: the shard at byte {shard.offset} is not {list(shape)} {dtype.name}")
        return arrays[0].read
    start = _values_in_archive(shard, shape, dtype)
    return lambda box: read_box(shard.path, start, shape, dtype, box)


def _values_in_archive(shard: DcpShard, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The byte of the file at which the values of a ``torch.save`` archive begin; they are never compressed."""
    where = f"{shard.path}: the shard at byte {shard.offset}"
    stream = io.BufferedReader(_Range(shard))
    try:
        with torch.serialization.skip_data():
            tensor = torch.load(stream, weights_only=True, map_location="cpu")
        archive = zipfile.ZipFile(stream)
        (entry,) = [entry for entry in archive.infolist() if entry.filename.endswith("/data/0")]
        found = (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.is_contiguous())
        first = int(tensor.storage_offset()) * dtype.itemsize
    except Exception as error:  # torch.load raises what it likes for a damaged file
        reason = first_line(error)
        raise InputError(f"{where} cannot be read ({reason})") from error
    size: int = math.prod(shape) * dtype.itemsize
    if found != (shape, dtype.name, True) or entry.compress_type or entry.file_size < first + size:
        raise InputError(f"{where} is not a contiguous tensor of {list(shape)} {dtype.name}")
    stream.seek(entry.header_offset + LOCAL_HEADER - 4)
    name_bytes, extra_bytes = (int.from_bytes(stream.read(2), "little") for _ in range(2))
    start = entry.header_offset + LOCAL_HEADER + name_bytes + extra_bytes + first
    if start + size > shard.length:
        raise InputError(f"{where} ends before its values do")
    return shard.offset + start


class _Range(io.RawIOBase):
    """A range of a file, as a file."""

    def __init__(self, shard: DcpShard) -> None:
        super().__init__()
        self._file = shard.path.open("rb")
        self._start, self._length, self._at = shard.offset, shard.length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._length - self._at)]
        self._file.seek(self._start + self._at)
        got: int = self._file.readinto(view)
        self._at += got
        return got

    def close(self) -> None:
        self._file.close()
        super().close()
