"""PyTorch's distributed checkpoints (DCP) without running what a stranger may have put into them.

``.metadata`` is a pickle. It is read by an unpickler that knows the names PyTorch writes there and builds plain objects
of our own for them; any other name is refused. The shards in the ``.distcp`` files are ``torch.save`` archives, whose
own small pickle PyTorch reads with ``weights_only``, or safetensors streams. Values are read in place, by byte ranges.
"""

import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch

from checkpoint_convert.byte_ranges import Box, Values, read_box, shape_of
from checkpoint_convert.read_safetensors import arrays_in_file
from checkpoint_convert.stored_array import StoredArray
from stage.errors import InputError

METADATA = ".metadata"
LARGEST_METADATA = 1 << 30
"""Bytes; a shard of an array takes about 150."""
MOST_AXES = 64
LOCAL_HEADER = 30
"""Bytes of a zip entry's header before its name, whose length is in the last four (PKWARE's APPNOTE 4.3.7)."""

DTYPES = {
    "bool": np.dtype(np.bool_),
    "uint8": np.dtype("u1"),
    "int8": np.dtype("i1"),
    "int16": np.dtype("<i2"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}


class _Fields:
    """Stands for every class of DCP: whatever fields the pickle gives it."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__["state"] = state

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__.get("state")
        if not isinstance(state, dict) or name not in state:
            raise AttributeError(f"no {name}")
        return state[name]


def _size(values: Sequence[int] = ()) -> tuple[int, ...]:
    if len(values) > MOST_AXES:  # copies of copies could take any amount of memory
        raise pickle.UnpicklingError(f"{len(values)} axes")
    return tuple(values)


def _ignored(*_: Any) -> None:
    """Layout, memory format, the folder it was saved in: nothing depends on them."""


_DCP = "torch.distributed.checkpoint."
KNOWN: Mapping[tuple[str, str], Any] = {
    (_DCP + "metadata", "Metadata"): _Fields,
    (_DCP + "metadata", "TensorStorageMetadata"): _Fields,
    (_DCP + "metadata", "BytesStorageMetadata"): _Fields,
    (_DCP + "metadata", "ChunkStorageMetadata"): _Fields,
    (_DCP + "metadata", "TensorProperties"): _Fields,
    (_DCP + "metadata", "MetadataIndex"): _Fields,
    (_DCP + "metadata", "StorageMeta"): _Fields,
    (_DCP + "metadata", "_MEM_FORMAT_ENCODING"): _ignored,
    (_DCP + "filesystem", "_StorageInfo"): _Fields,
    ("torch", "Size"): _size,
    ("torch.serialization", "_get_layout"): _ignored,
    ("pathlib", "PosixPath"): _ignored,
    ("pathlib._local", "PosixPath"): _ignored,
    **{("torch", name): name for name in DTYPES},
}
"""All that a pickle of DCP's metadata may name, and what is built in its place."""


SIZED = {"PUT", "BINPUT", "LONG_BINPUT", "FRAME"}
"""Operations whose number no honest pickle of n bytes has above n."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint needs and could run code")
        return KNOWN[module, name]


@dataclass(frozen=True)
class Shard:
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
    metadata = _read_metadata(folder / METADATA)
    try:
        shards = _shards_by_name(folder, metadata)
        entries = metadata.state_dict_metadata.items()
        return {name: _array(name, entry, shards.get(name, {})) for name, entry in entries if hasattr(entry, "chunks")}
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise InputError(f"{folder / METADATA}: not the metadata of a distributed checkpoint ({error})") from error


def _read_metadata(path: Path) -> Any:
    if path.stat().st_size > LARGEST_METADATA:
        raise InputError(f"{path}: {path.stat().st_size:,} bytes, more than any checkpoint's metadata has")
    try:
        content = path.read_bytes()
        _check_sizes(content)
        return _Unpickler(io.BytesIO(content)).load()
    except Exception as error:  # a damaged pickle can raise anything
        reason = (str(error) or repr(error)).splitlines()[0]
        raise InputError(f"{path}: not the metadata of a distributed checkpoint ({reason})") from error


def _check_sizes(content: bytes) -> None:
    """Numbers by which the unpickler takes memory before it has seen the data, and strings that are not all there."""
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in SIZED and argument is not None and argument > len(content):
            raise pickle.UnpicklingError(f"{operation.name} {argument} in {len(content)} bytes")


def _shards_by_name(folder: Path, metadata: Any) -> dict[str, dict[tuple[int, ...], tuple[Path, int, int]]]:
    """File, offset and length of each shard, by array and by the place of its first value."""
    found: dict[str, dict[tuple[int, ...], tuple[Path, int, int]]] = {}
    for index, info in metadata.storage_data.items():
        if not hasattr(index, "offset") or index.offset is None:  # not a tensor
            continue
        name = str(info.relative_path)
        if name in ("", ".", "..") or "/" in name:
            raise ValueError(f"a shard in {name!r}, outside the folder")
        if getattr(info, "transform_descriptors", None):
            raise ValueError(f"{index.fqn} is stored transformed, which is not read here")
        found.setdefault(index.fqn, {})[_numbers(index.offset)] = (folder / name, *_numbers([info.offset, info.length]))
    return found


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
            shards.append(Shard(box, *stored[offsets]))
    if sum(math.prod(shape_of(shard.box)) for shard in shards) != math.prod(shape):
        raise ValueError(f"{name}: its shards do not make up its shape {list(shape)}")
    largest = max((shape_of(shard.box) for shard in shards), key=math.prod, default=shape)
    length = sum(shard.length for shard in shards)
    return StoredArray(shape, dtype, largest, lambda: (length, 0), _Reader(name, dtype, shards).read)


class _Reader:
    """Reads boxes of one array; where a shard's values begin is looked up once."""

    def __init__(self, name: str, dtype: np.dtype[Any], shards: Sequence[Shard]) -> None:
        self._name, self._dtype, self._shards = name, dtype, shards
        self._reads: dict[tuple[Path, int], Callable[[Box], Values]] = {}

    def read(self, box: Box) -> Values:
        values = np.zeros(shape_of(box), self._dtype)
        filled = 0
        for shard in self._shards:
            common = [slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(box, shard.box, strict=True)]
            if any(part.start >= part.stop for part in common):
                continue
            target = _relative(common, box)
            key = shard.path, shard.offset
            if key not in self._reads:
                self._reads[key] = open_shard(shard, self._dtype)
            values[target] = self._reads[key](_relative(common, shard.box))
            filled += values[target].size
        if filled != values.size:
            raise InputError(f"{self._name}: its shards overlap and leave gaps; the checkpoint is damaged")
        return values


def _relative(parts: Sequence[slice], to: Box) -> Box:
    return tuple(
        slice(part.start - origin.start, part.stop - origin.start) for part, origin in zip(parts, to, strict=True)
    )


def open_shard(shard: Shard, dtype: np.dtype[Any]) -> Callable[[Box], Values]:
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


def _values_in_archive(shard: Shard, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
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
        reason = (str(error) or repr(error)).splitlines()[0]
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

    def __init__(self, shard: Shard) -> None:
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
