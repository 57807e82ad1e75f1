"""PyTorch's distributed checkpoints (DCP), read as data, because they may be a stranger's: no code in them runs.

``.metadata`` is a pickle of PyTorch's own classes, or of Megatron-Core's; only the few fields that say where values lie
are looked at. The values lie in ``.distcp`` files, each box in an archive of ``torch.save``, and are read in place.
"""

import gc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from checkpoint_convert.formats.boxes import Box, box_at, items_in, overlap, relative, shape_of
from checkpoint_convert.formats.stored_array import (
    MEND,
    StoredArray,
    Values,
    open_regular,
    part_of,
    read_box,
    shape_text,
)
from foundation.errors import InputError, first_line
from foundation.file_formats.inert_pickle import PickledName, PickledObject, attributes, kind_of_value, load_pickle
from foundation.file_formats.torch_archive import LARGEST_SIZE, MOST_AXES, locate_tensor
from foundation.regular_files import read_regular

METADATA = ".metadata"
LARGEST_METADATA = 1 << 28
"""Most bytes of the metadata; a box of an array takes about 200."""
MOST_EMPTY_BOXES = 10_000
"""Most boxes without values, which need no place in a file."""
LONGEST_TENSOR_NAME, LONGEST_FILE_NAME = 4096, 255
DTYPES: Mapping[str, np.dtype[Any]] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    **{name: np.dtype(name) for name in ("bool", "uint8", "int8", "int16", "int32", "int64")},
    **{name: np.dtype(name) for name in ("float16", "float32", "float64")},
}
"""The dtypes that are read, by PyTorch's name."""
METADATA_CLASSES = (
    "torch.distributed.checkpoint.metadata.Metadata",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
)
KNOWN_MODULES = ("torch", "megatron", "pathlib", "collections")
"""Packages whose names the metadata may contain. None of them is imported for it."""
KNOWN_NAMES = {"builtins.getattr", "builtins.set", "builtins.frozenset", "builtins.slice", "builtins.bytearray"}
"""Further names that it may contain: Python 3.11.0 to 3.11.3 wrote members of an Enum by ``getattr``."""


def _is_known(name: str) -> bool:
    return name.partition(".")[0] in KNOWN_MODULES or name in KNOWN_NAMES


@dataclass(frozen=True)
class FilePart:
    """A box of an array, in one range of one file."""

    box: Box
    path: Path
    offset: int
    length: int
    """Bytes of the archive that holds the values."""


@dataclass(frozen=True)
class DCPArray(StoredArray):
    """A tensor of a distributed checkpoint, whose boxes lie in C order in files."""

    parts: Sequence[FilePart]
    _starts: dict[tuple[Path, int], int] = field(default_factory=dict, init=False)
    """First byte of the values of each part that has been read."""

    def read(self, box: Box) -> Values:
        values = np.empty(shape_of(box), self.dtype)
        filled = 0
        for part in self.parts if values.size else ():
            if (common := overlap(box, part.box)) is None:
                continue
            target, key = part_of(values, relative(common, box)), (part.path, part.offset)
            if key not in self._starts:
                self._starts[key] = _first_value(part, self.dtype)
            try:
                with open_regular(part.path) as file:
                    read_box(file, self._starts[key], shape_of(part.box), relative(common, part.box), target)
            except ValueError as error:
                raise InputError(f"{part.path}: {error}; {MEND}") from error
            filled += target.size
        if filled != values.size:
            raise InputError(f"{self.parts[0].path}: its stored parts overlap and leave gaps; {MEND}")
        return values


def dcp_arrays(folder: Path) -> dict[str, StoredArray]:
    """Return the tensors of a distributed checkpoint; everything else in it is left alone.

    Raises InputError if ``.metadata`` is damaged, names anything but DCP's own classes, or describes boxes that do not
    make up their arrays.
    """
    collects = gc.isenabled()
    gc.disable()  # of the million objects of a large model none is garbage; searching them took a third of the time
    try:
        content = load_pickle(read_regular(folder / METADATA, LARGEST_METADATA), _is_known)
        if type(content) is not PickledObject or content.name not in METADATA_CLASSES:
            raise ValueError(f"{kind_of_value(content)} instead of {METADATA_CLASSES[0]}")
        metadata = attributes(content, content.name.rpartition(".")[2])
        return _arrays(folder, metadata.get("state_dict_metadata"), metadata.get("storage_data"))
    except (AttributeError, TypeError, ValueError, LookupError) as error:
        raise InputError(
            f"{folder / METADATA}: not the metadata of a distributed checkpoint ({first_line(error)})"
        ) from error
    finally:
        if collects:
            gc.enable()


def _arrays(folder: Path, entries: Any, storage: Any) -> dict[str, StoredArray]:
    if type(entries) is not dict or type(storage) is not dict:
        raise ValueError("no list of tensors and their files")
    locations = _locations(folder, storage)
    boxes_left = len(locations) + MOST_EMPTY_BOXES
    arrays = {}
    for name, entry in entries.items():
        if type(entry) is PickledObject and entry.name.endswith(".TensorStorageMetadata"):
            tensor = attributes(entry, "TensorStorageMetadata")
            chunks = tensor["chunks"]
            if type(chunks) is not list or len(chunks) > boxes_left:
                raise ValueError("more boxes of tensors than the files hold")
            boxes_left -= len(chunks)
            arrays[name] = _array(_text(name, LONGEST_TENSOR_NAME), tensor, chunks, locations)
    return arrays


Locations = Mapping[tuple[str, tuple[int, ...]], tuple[Path, int, int]]
"""File, offset and length of each box, by its array's name and the index of its first value."""


def _locations(folder: Path, storage: Mapping[Any, Any]) -> Locations:
    locations: dict[tuple[str, tuple[int, ...]], tuple[Path, int, int]] = {}
    paths: dict[str, Path] = {}
    for key, value in storage.items():
        index, info = attributes(key, "MetadataIndex"), attributes(value, "_StorageInfo")
        if index.get("offset") is None:  # not a tensor
            continue
        tensor, file = _text(index["fqn"], LONGEST_TENSOR_NAME), _file_name(info["relative_path"])
        if info.get("transform_descriptors"):
            raise ValueError(f"{tensor[:100]} is stored transformed, which is not read here")
        path = paths[file] = paths.get(file) or folder / file
        offset, length = _numbers((info["offset"], info["length"]))
        locations[tensor, _size(index["offset"])] = (path, offset, length)
    return locations


def _file_name(value: Any) -> str:
    """Return the name of a file in the checkpoint's folder, written as a text or as a path of one part."""
    if type(value) is PickledObject and value.name.endswith("PosixPath") and len(value.arguments) == 1:
        value = value.arguments[0]
    name = _text(value, LONGEST_FILE_NAME)
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"values in {name!r}, outside the folder")
    return name


def _text(value: Any, most: int) -> str:
    if type(value) is not str or len(value) > most:
        raise ValueError(f"{kind_of_value(value)} instead of a name of at most {most:,} characters")
    return value


def _size(value: Any) -> tuple[int, ...]:
    """Return the numbers of a ``torch.Size``."""
    numbers = value.arguments if type(value) is PickledObject and value.name == "torch.Size" else (value,)
    return _numbers(numbers[0] if numbers else ())


def _numbers(values: Any) -> tuple[int, ...]:
    if type(values) not in (tuple, list):
        raise ValueError(f"{kind_of_value(values)} instead of a size")
    if len(values) > MOST_AXES:  # copies of copies could take any amount of memory
        raise ValueError(f"{len(values)} axes")
    if not all(type(value) is int and 0 <= value <= LARGEST_SIZE for value in values):
        raise ValueError("a size or offset that is not a number of 0 or more")
    return tuple(values)


def _array(name: str, tensor: Mapping[str, Any], chunks: Sequence[Any], locations: Locations) -> StoredArray:
    dtype, shape, parts = _dtype(name, tensor["properties"]), _size(tensor["size"]), []
    for chunk in chunks:
        side = attributes(chunk, "ChunkStorageMetadata")
        offsets = _size(side["offsets"])
        box = box_at(offsets, _size(side["sizes"]))
        if any(part.stop > size for part, size in zip(box, shape, strict=True)):
            raise ValueError(f"{name[:100]}: values beyond its shape {shape_text(shape)}")
        if not items_in(box):
            continue
        if (location := locations.get((name, offsets))) is None:
            raise ValueError(f"{name[:100]}: no file for its values at {shape_text(offsets)}")
        parts.append(FilePart(box, *location))
    if sum(items_in(part.box) for part in parts) != math.prod(shape):
        raise ValueError(f"{name[:100]}: its parts do not make up its shape {shape_text(shape)}")
    largest = max((shape_of(part.box) for part in parts), key=math.prod, default=shape)
    return DCPArray(shape, dtype, largest, parts)


def _dtype(name: str, properties: Any) -> np.dtype[Any]:
    """Return the dtype among a tensor's properties, whose state is a tuple that begins with it."""
    state = properties.state if type(properties) is PickledObject else None
    first = state[0] if type(state) is tuple and state else None
    dtype = first.name.removeprefix("torch.") if type(first) is PickledName else ""
    if dtype not in DTYPES:
        raise ValueError(f"{name[:100]}: a dtype that is not read here")
    return DTYPES[dtype]


def _first_value(part: FilePart, dtype: np.dtype[Any]) -> int:
    """Return the first byte of the values of a part. Raises InputError if the file holds something else."""
    shape, where = shape_of(part.box), f"{part.path}: the tensor at byte {part.offset}"
    try:
        with open_regular(part.path) as file:
            tensor = locate_tensor(file, part.offset, part.length)
    except (ValueError, OSError) as error:
        raise InputError(f"{where} cannot be read ({first_line(error)})") from error
    if tensor.shape != shape or DTYPES[tensor.dtype] != dtype:
        raise InputError(f"{where} is not a contiguous tensor of {list(shape)} {dtype.name}")
    return part.offset + tensor.start
