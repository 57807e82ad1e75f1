"""PyTorch's distributed checkpoints (DCP), read without running any code in them, because they may be a stranger's.

``.metadata`` is a pickle, of which only PyTorch's own classes for it are built. The values lie in ``.distcp`` files as
``torch.save`` archives, whose own small pickle PyTorch reads with ``weights_only``; a box of them is read in place.
"""

import gc
import math
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import IOBase
from pathlib import Path
from typing import IO, Any, cast

import ml_dtypes
import numpy as np
import torch
from torch.distributed.checkpoint import filesystem, metadata, planner
from torch.distributed.checkpoint.utils import _create_file_view

from checkpoint_convert.formats.boxes import Box, box_at, items_in, overlap, relative, shape_of
from checkpoint_convert.formats.stored_array import MEND, StoredArray, Values, open_regular, part_of, read_box
from foundation.errors import InputError, first_line
from foundation.regular_files import read_regular
from foundation.safe_pickle import load_pickle

METADATA = ".metadata"
LARGEST_METADATA = 1 << 30
"""Most bytes of the metadata; a box of an array takes about 150."""
MOST_AXES = 64
DTYPES: Mapping[torch.dtype, np.dtype[Any]] = {
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    **{getattr(torch, name): np.dtype(name) for name in ("bool", "uint8", "int8", "int16", "int32", "int64")},
    **{getattr(torch, name): np.dtype(name) for name in ("float16", "float32", "float64")},
}


def _size(values: Sequence[int] = ()) -> tuple[int, ...]:
    """Stand for torch.Size; without a bound, copies of copies could take any amount of memory."""
    if len(values) > MOST_AXES:
        raise ValueError(f"{len(values)} axes")
    return tuple(values)


_MEGATRON = "megatron.core.dist_checkpointing.strategies.torch"
_CLASSES = (
    *(metadata.Metadata, metadata.TensorStorageMetadata, metadata.BytesStorageMetadata, metadata.ChunkStorageMetadata),
    *(metadata.TensorProperties, metadata.MetadataIndex, metadata.StorageMeta, metadata._MEM_FORMAT_ENCODING),
    *(planner.SavePlan, planner.WriteItem, planner.TensorWriteData, planner.WriteItemType, filesystem._StorageInfo),
)
KNOWN: Mapping[tuple[str, str], Any] = {
    **{(kind.__module__, kind.__name__): kind for kind in _CLASSES},
    **{("torch", str(dtype).removeprefix("torch.")): dtype for dtype in DTYPES},
    ("torch", "Size"): _size,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    ("pathlib", "PosixPath"): pathlib.PurePosixPath,
    ("pathlib._local", "PosixPath"): pathlib.PurePosixPath,
    (_MEGATRON, "MCoreMetadata"): metadata.Metadata,  # Megatron-Core notes who wrote what, too
    (_MEGATRON, "MCoreSavePlan"): planner.SavePlan,
}
"""All names that a pickle of DCP's metadata may contain, and the class or function that is used for each."""


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
        found: metadata.Metadata = load_pickle(read_regular(folder / METADATA, LARGEST_METADATA), KNOWN)
        places = _places(folder, found.storage_data)
        return {
            name: _array(name, entry, places)
            for name, entry in found.state_dict_metadata.items()
            if isinstance(entry, metadata.TensorStorageMetadata)
        }
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"{folder / METADATA}: not the metadata of a distributed checkpoint ({first_line(error)})"
        ) from error
    finally:
        if collects:
            gc.enable()


Places = Mapping[tuple[str, tuple[int, ...]], tuple[Path, int, int]]
"""File, offset and length of each box, by its array's name and the index of its first value."""


def _places(folder: Path, stored: Mapping[metadata.MetadataIndex, Any]) -> Places:
    found: dict[tuple[str, tuple[int, ...]], tuple[Path, int, int]] = {}
    paths: dict[str, Path] = {}
    for index, info in stored.items():
        if index.offset is None:  # not a tensor
            continue
        name = str(info.relative_path)
        if name in ("", ".", "..") or "/" in name:
            raise ValueError(f"values in {name!r}, outside the folder")
        if getattr(info, "transform_descriptors", None):
            raise ValueError(f"{index.fqn} is stored transformed, which is not read here")
        path = paths[name] = paths.get(name) or folder / name
        offset, length = _numbers([info.offset, info.length])
        found[index.fqn, _numbers(index.offset)] = (path, offset, length)
    return found


def _numbers(values: Sequence[Any]) -> tuple[int, ...]:
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{values}: expected numbers of 0 or more")
    return tuple(values)


def _array(name: str, entry: metadata.TensorStorageMetadata, places: Places) -> StoredArray:
    if entry.properties.dtype not in DTYPES:
        raise ValueError(f"{name}: a dtype that is not read here")
    shape, parts = _numbers(entry.size), []
    for chunk in entry.chunks:
        offsets = _numbers(chunk.offsets)
        box = box_at(offsets, _numbers(chunk.sizes))
        if any(side.stop > size for side, size in zip(box, shape, strict=True)):
            raise ValueError(f"{name}: values beyond its shape {list(shape)}")
        if items_in(box):
            parts.append(FilePart(box, *places[name, offsets]))
    if sum(items_in(part.box) for part in parts) != math.prod(shape):
        raise ValueError(f"{name}: its parts do not make up its shape {list(shape)}")
    largest = max((shape_of(part.box) for part in parts), key=math.prod, default=shape)
    return DCPArray(shape, DTYPES[entry.properties.dtype], largest, parts)


def _first_value(part: FilePart, dtype: np.dtype[Any]) -> int:
    """Return the first byte of the values of a part. Raises InputError if the file holds something else."""
    shape, where = shape_of(part.box), f"{part.path}: the tensor at byte {part.offset}"
    try:
        with open_regular(part.path) as file:
            view = cast(IO[bytes], _create_file_view(cast(IOBase, file), part.offset, part.length))
            with torch.serialization.skip_data():
                tensor = torch.load(view, weights_only=True, map_location="cpu")
            view.seek(0)
            archive: Any = torch._C.PyTorchFileReader(view)
            start: int = archive.get_record_offset("data/0")
        start += int(tensor.storage_offset()) * dtype.itemsize
        is_it = tuple(tensor.shape) == shape and DTYPES.get(tensor.dtype) == dtype and tensor.is_contiguous()
    except Exception as error:  # torch.load raises what it likes for a damaged file
        raise InputError(f"{where} cannot be read ({first_line(error)})") from error
    if not is_it or start + math.prod(shape) * dtype.itemsize > part.length:
        raise InputError(f"{where} is not a contiguous tensor of {list(shape)} {dtype.name}")
    return part.offset + start
