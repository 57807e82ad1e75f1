"""Safetensors files: eight bytes with the header's length, a JSON header, the values of one array behind another."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ml_dtypes
import msgspec
import numpy as np

from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.stored_array import FileArray, FilePart, StoredArray, open_regular
from stage.errors import InputError, first_line
from stage.json_files import read_json

LARGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""
DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
}
Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class SafetensorsEntry:
    """One array in a file's header."""

    dtype: str
    shape: tuple[Count, ...]
    data_offsets: tuple[Count, Count]
    """First byte, and the one behind the last, counted from the header's end."""


@dataclass(frozen=True)
class SafetensorsIndex:
    """The file of each array, beside the files of a folder."""

    weight_map: dict[str, str]


def safetensors_arrays(folder: Path) -> dict[str, StoredArray]:
    """Return the arrays of a file, or of all files in a folder.

    Raises InputError where a header is damaged, two files hold the same array, or the folder's index says otherwise.
    """
    arrays: dict[str, StoredArray] = {}
    places: dict[str, str] = {}
    for path in [folder] if folder.is_file() else sorted(folder.glob("*.safetensors")):
        for name, array in _arrays_in_file(path).items():
            if name in places:
                raise InputError(f"{path}: holds {name}, which {places[name]} holds too")
            arrays[name], places[name] = array, path.name
    for index in sorted(folder.glob("*.safetensors.index.json")):
        listed = read_json(index, SafetensorsIndex, mend="fetch or export the checkpoint again").weight_map
        if different := sorted(dict(listed.items() ^ places.items())):
            raise InputError(f"{index}: does not list {different[0]} where it is; fetch or export the checkpoint again")
    return arrays


def _arrays_in_file(path: Path) -> Mapping[str, StoredArray]:
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
    shape, (first, last), dtype = entry.shape, entry.data_offsets, DTYPES[entry.dtype]
    if last - first != math.prod(shape) * dtype.itemsize or data + last > end:
        raise ValueError(f"shape {shape} of {dtype.name} in bytes {first} to {last} of {end - data}")
    part = FilePart(whole_box(shape), path, data + first, last - first)
    return FileArray(shape, dtype, shape, [part], lambda part, dtype: part.offset)
