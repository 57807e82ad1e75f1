"""The arrays of a conversion's source and target: check the required ones, and make the metadata to write."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from checkpoint_convert.formats.array_table import chunk_shape
from checkpoint_convert.formats.source_files import SourceFiles
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, ZarrArray, metadata_text
from stage.errors import InputError

FP32 = np.dtype(np.float32)


class Expected(NamedTuple):
    """An array of the source, and the shape that it must have."""

    stored: ZarrArray
    shape: tuple[int, ...]
    read: tuple[int, ...]
    """Shape of the part that is read, from the first value on."""


def require_arrays(files: SourceFiles, arrays: Sequence[Expected], *, absent_are_zeros: bool, mend: str) -> int:
    """Look for all chunks that are read, and return how many have no file.

    Raises InputError for another shape or dtype. A chunk without a file raises InputError ending with ``mend``, unless
    ``absent_are_zeros`` is set and the array's fill value is zero or not given.
    """
    for stored, shape, _ in arrays:
        if (stored.shape, stored.dtype) != (shape, FP32):
            found = f"shape {list(stored.shape)} {stored.dtype.name}"
            raise InputError(f"{stored.where}: {found}, expected {list(shape)} float32 like the weights")
    names = {stored.name: [f"{stored.name}/{key}" for key in stored.keys_within(read)] for stored, _, read in arrays}
    files.ask([name for some in names.values() for name in some])
    zeros = 0
    for stored, _, _ in arrays:
        absent = [name for name in names[stored.name] if not files.has(name)]
        if absent and absent_are_zeros and repr(stored.metadata.get("fill_value")) not in ("None", "0", "0.0"):
            mend = "fetch it again (its fill_value says that it stands for something else than zeros)"
        elif absent_are_zeros:
            zeros += len(absent)
            continue
        if absent:
            raise InputError(f"{stored.where}: chunk {absent[0].removeprefix(f'{stored.name}/')} is missing; {mend}")
    return zeros


def metadata_files(arrays: Iterable[tuple[str, tuple[int, ...], str]]) -> Mapping[str, bytes]:
    """Return the metadata of output arrays by the names of their files, from names, shapes and dtypes."""
    return {f"{name}/{METADATA_FILE}": metadata_text(shape, dtype, chunk_shape(shape)) for name, shape, dtype in arrays}
