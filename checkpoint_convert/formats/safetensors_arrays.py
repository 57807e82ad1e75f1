"""Safetensors files: eight bytes with the header's length, a JSON header, the values of one array behind another.

Values are read in place, by byte ranges.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import msgspec
import numpy as np

from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.byte_ranges import MEND, Values, open_regular, read_box
from checkpoint_convert.formats.stored_array import StoredArray
from stage.errors import InputError, first_line
from stage.json_files import read_json

LARGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""
DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class SafetensorsEntry:
    """One array in a file's header."""

    dtype: str
    shape: tuple[Count, ...]
    data_offsets: tuple[Count, Count]
    """First and last byte, counted from the header's end."""


@dataclass(frozen=True)
class Index:
    """The file of each array, beside the files of a folder."""

    weight_map: dict[str, str]


def safetensors_arrays(folder: Path) -> dict[str, StoredArray]:
    """Return the arrays of a file, or of all files in a folder.

    Raises InputError where a header is damaged, two files hold the same array, or a file lacks an array that the
    folder's index says it holds.
    """
    files = [folder] if folder.is_file() else sorted(folder.glob("*.safetensors"))
    arrays: dict[str, StoredArray] = {}
    places: dict[str, str] = {}
    for path in files:
        for name, array in _arrays_in_file(path).items():
            if name in places:
                raise InputError(f"{path}: holds {name}, which {places[name]} holds too")
            arrays[name], places[name] = array, path.name
    for index in sorted(folder.glob("*.safetensors.index.json")):
        _check_index(index, places)
    return arrays


def _check_index(index: Path, places: Mapping[str, str]) -> None:
    listed = read_json(index, Index, mend="fetch or export the checkpoint again").weight_map
    for name, file in listed.items():
        if places.get(name) != file:
            raise InputError(f"{index}: lists {name} in {file}, which does not hold it")
    for name in places.keys() - listed.keys():
        raise InputError(f"{index}: does not list {name}, which {places[name]} holds")


def _arrays_in_file(path: Path) -> dict[str, StoredArray]:
    """Raise InputError where the file is none, or an array is not where its shape and dtype say."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        header_bytes = int.from_bytes(file.read(8), "little")
        if size < 8 or header_bytes > min(size - 8, LARGEST_HEADER):
            raise InputError(f"{path}: not a safetensors file (a header of {header_bytes:,} bytes in {size:,})")
        header = file.read(header_bytes)
    try:
        entries = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        entries.pop("__metadata__", None)
        return {
            name: _array(path, 8 + header_bytes, size, msgspec.json.decode(raw, type=SafetensorsEntry))
            for name, raw in entries.items()
        }
    except (ValueError, KeyError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise InputError(f"{path}: not a safetensors file (its header: {first_line(error)})") from error


def _array(path: Path, data: int, end: int, entry: SafetensorsEntry) -> StoredArray:
    shape, (first, last) = entry.shape, entry.data_offsets
    dtype: np.dtype[Any] = DTYPES[entry.dtype]
    if last - first != math.prod(shape) * dtype.itemsize or data + last > end:
        raise ValueError(f"shape {shape} of {dtype.name} in bytes {first} to {last} of {end - data}")

    def read(box: Box) -> Values:
        try:
            with open_regular(path) as file:
                return read_box(file, data + first, shape, dtype, box)
        except ValueError as error:
            raise InputError(f"{path}: {error}; {MEND}") from error

    return StoredArray(shape, dtype, shape, lambda: (last - first, 0), read)
