"""The arrays of safetensors files, read in part by the format's own library."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from checkpoint_convert.formats.boxes import Box, shape_of
from checkpoint_convert.formats.stored_array import MEND, StoredArray, Values
from foundation.disk_answers import entries_in, file_is_there
from foundation.errors import InputError, first_line
from foundation.file_formats.json_files import read_json
from foundation.regular_files import is_regular
from foundation.sizes import require_array

DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
}


@dataclass(frozen=True)
class SafetensorsIndex:
    """An index file: the file of each array, beside the files of a folder."""

    weight_map: dict[str, str]


@dataclass(frozen=True)
class SafetensorsArray(StoredArray):
    """One array of a file."""

    path: Path
    name: str

    def read(self, box: Box) -> Values:
        if 0 in (shape := shape_of(box)):
            return np.empty(shape, self.dtype)
        with _opened(self.path) as file:
            values: Values = file.get_slice(self.name)[box] if box else file.get_tensor(self.name)
        return values


def safetensors_arrays(folder: Path) -> dict[str, StoredArray]:
    """Return the arrays of a file, or of all files in a folder.

    Raises InputError if a file is damaged, two files hold the same array, or the folder's index contradicts the files.
    """
    arrays: dict[str, StoredArray] = {}
    files: dict[str, str] = {}
    below = [folder] if file_is_there(folder) else [Path(entry) for entry in entries_in(folder)]
    for path in (path for path in below if path.name.endswith(".safetensors")):
        for name, array in _arrays_in_file(path).items():
            if name in files:
                raise InputError(f"{path}: holds {name}, which {files[name]} holds too")
            arrays[name], files[name] = array, path.name
    for index in (path for path in below if path.name.endswith(".safetensors.index.json")):
        listed = read_json(index, SafetensorsIndex, mend="fetch or export the checkpoint again").weight_map
        if different := sorted(dict(listed.items() ^ files.items())):
            raise InputError(f"{index}: does not list {different[0]} where it is; fetch or export the checkpoint again")
    return arrays


def _arrays_in_file(path: Path) -> dict[str, StoredArray]:
    if not is_regular(path):
        raise InputError(f"{path}: not a regular file")
    with _opened(path) as file:
        parts = {name: file.get_slice(name) for name in file.offset_keys()}
        shapes = {name: tuple(part.get_shape()) for name, part in parts.items()}
        dtypes = {name: DTYPES[part.get_dtype()] for name, part in parts.items()}
    for name, shape in shapes.items():
        require_array(f"{path}: {name[:100]}", shape, dtypes[name].itemsize, mend=MEND)
    return {name: SafetensorsArray(shape, dtypes[name], shape, path, name) for name, shape in shapes.items()}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file for a block. Raises InputError, naming it, for whatever the library finds wrong: its errors of the
    system bear no number."""
    try:
        with safe_open(path, "numpy") as file:
            yield file
    except (SafetensorError, KeyError, OSError) as error:
        raise InputError(f"{path}: not a safetensors file that is read here ({first_line(error)})") from error
