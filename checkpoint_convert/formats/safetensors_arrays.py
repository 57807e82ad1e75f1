"""Safetensors files: eight bytes with the header's length, a JSON header, the values of one array behind another."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.byte_ranges import Values, read_box
from checkpoint_convert.formats.chunk_files import open_regular
from checkpoint_convert.formats.stored_array import StoredArray
from stage.errors import InputError
from stage.limits.bounded_reading import DAMAGED, read_small_json

LARGEST_HEADER = 100_000_000
"""The format's own limit."""
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


def safetensors_arrays(folder: Path) -> dict[str, StoredArray]:
    """The arrays of a file, or of all files in a folder.

    Raises InputError where a header is damaged, two files hold the same array, or a file lacks an array that the
    folder's index says it holds.
    """
    files = [folder] if folder.is_file() else sorted(folder.glob("*.safetensors"))
    arrays: dict[str, StoredArray] = {}
    places: dict[str, str] = {}
    for path in files:
        for name, array in arrays_in_file(path, 0, path.stat().st_size).items():
            if name in places:
                raise InputError(f"{path}: holds {name}, which {places[name]} holds too")
            arrays[name], places[name] = array, path.name
    for index in sorted(folder.glob("*.safetensors.index.json")):
        _check_index(index, places)
    return arrays


def _check_index(index: Path, places: Mapping[str, str]) -> None:
    try:
        listed = dict(read_small_json(index)["weight_map"])
    except DAMAGED as error:
        raise InputError(f"{index}: not an index of safetensors files ({error})") from error
    for name, file in listed.items():
        if places.get(name) != file:
            raise InputError(f"{index}: lists {name} in {file}, which does not hold it")
    for name in places.keys() - listed.keys():
        raise InputError(f"{index}: does not list {name}, which {places[name]} holds")


def arrays_in_file(path: Path, start: int, length: int) -> dict[str, StoredArray]:
    """The arrays of the safetensors stream in bytes ``start`` to ``start + length`` of a file.

    Raises InputError where it is none, or an array is not where its shape and dtype say.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(start)
        header_bytes = int.from_bytes(file.read(8), "little")
        if length < 8 or start + length > size or header_bytes > min(length - 8, LARGEST_HEADER):
            raise InputError(f"{path}: not a safetensors file (a header of {header_bytes:,} bytes in {length:,})")
        header = file.read(header_bytes)
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        return {name: _array(path, start + 8 + header_bytes, start + length, entry) for name, entry in entries.items()}
    except DAMAGED as error:
        raise InputError(f"{path}: not a safetensors file (its header: {error!r})") from error


def _array(path: Path, data: int, end: int, entry: Mapping[str, Any]) -> StoredArray:
    shape, (first, last) = tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, first, last)):
        raise ValueError(f"shape {shape}, bytes {first} to {last}")
    dtype = DTYPES[entry["dtype"]]
    if last - first != math.prod(shape) * dtype.itemsize or data + last > end:
        raise ValueError(f"shape {shape} of {dtype.name} in bytes {first} to {last} of {end - data}")

    def read(box: Box) -> Values:
        return read_box(path, data + first, shape, dtype, box)

    return StoredArray(shape, dtype, shape, lambda: (last - first, 0), read)
