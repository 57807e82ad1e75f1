"""Zarr v2 arrays, one per folder, through TensorStore."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorstore as ts

from checkpoint_convert.formats.chunk_files import MEND
from stage.errors import InputError, first_line
from stage.json_files import read_json
from stage.sizes import require_array

METADATA_FILE = ".zarray"
LARGEST_METADATA_FILE = 1 << 20
"""Bytes; those of the benchmark's checkpoint have some 300."""
DTYPES = {"float32": "<f4", "bfloat16": "bfloat16", "int32": "<i4", "uint32": "<u4"}
TENSORSTORE_FAILS: tuple[type[Exception], ...] = (ValueError, NotImplementedError)
"""TensorStore's errors: the latter where a file system says "not implemented" (ENOSYS)."""
LARGEST_ITEM = 16
"""Bytes of a value, complex ones included."""


def open_array(path: Path, *, readers: int | None = None, missing_are_zeros: bool = False) -> Any:
    """Open an existing array for reading, at most ``readers`` chunks at the same time. Reading a chunk that has no file
    raises ValueError, unless ``missing_are_zeros``.

    Raises InputError where there is none, or its metadata is damaged or tells of an array that cannot be.
    """
    read_metadata(path)
    spec = _spec(path, readers)
    spec["fill_missing_data_reads"] = missing_are_zeros
    try:
        return ts.open(spec, open=True, read=True).result()
    except ValueError as error:
        raise InputError(f"{path}: not a zarr array ({first_line(error)[:200]})") from error
    except NotImplementedError as error:
        raise InputError(f"{path}: cannot be opened ({first_line(error)[:200]})") from error


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the fields of an array's ``.zarray``. Raises InputError where there is none, it is damaged, or shape and
    chunks are none that an array can have."""
    try:
        fields = read_json(path / METADATA_FILE, dict[str, Any], mend=MEND, largest=LARGEST_METADATA_FILE)
    except FileNotFoundError as error:
        raise InputError(f"{path}: array is missing (no {METADATA_FILE} in it)") from error
    shape, chunks = fields.get("shape"), fields.get("chunks")
    if not isinstance(shape, list) or not isinstance(chunks, list):
        raise InputError(f"{path}: not a zarr array ({METADATA_FILE} has no shape and chunks); {MEND}")
    require_array(path, shape, LARGEST_ITEM, mend=MEND)
    require_array(path, chunks, LARGEST_ITEM, mend=MEND)
    if len(shape) != len(chunks) or 0 in chunks:
        raise InputError(f"{path}: shape {shape} and chunks {chunks} do not go together; {MEND}")
    return fields


def absent_chunks_are_zeros(path: Path) -> bool:
    """Whether a chunk without a file stands for zeros, as ``fill_value`` has it: for +0 or for nothing said."""
    return repr(read_metadata(path).get("fill_value")) in ("None", "0", "0.0")


def create_array(
    path: Path, shape: Sequence[int], dtype: str, chunks: Sequence[int], compressor: dict[str, Any] | None = None
) -> Any:
    """Create an array, or open the same one; ``dtype`` is one of DTYPES."""
    spec = _spec(path)
    spec["metadata"] = {
        "dtype": DTYPES[dtype],
        "shape": list(shape),
        "chunks": list(chunks),
        "compressor": compressor,
    }
    return ts.open(spec, create=True, open=True).result()


def metadata_text(shape: Sequence[int], dtype: str, chunks: Sequence[int]) -> bytes:
    """Return the bytes that TensorStore writes into the ``.zarray`` of an uncompressed array, for a caller who can say
    what went wrong where the disk is full."""
    spec = _spec(Path())
    spec["kvstore"], spec["context"] = {"driver": "memory", "path": "a/"}, {}
    spec["metadata"] = {"dtype": DTYPES[dtype], "shape": list(shape), "chunks": list(chunks), "compressor": None}
    opened: Any = ts.open(spec, create=True).result()
    found: bytes = opened.kvstore.read(METADATA_FILE).result().value
    return found


def _spec(path: Path, readers: int | None = None) -> dict[str, Any]:
    # Without file_io_sync TensorStore syncs every chunk and its folder; whoever publishes the folder syncs it once.
    context: dict[str, Any] = {"file_io_sync": False}
    if readers is not None:
        limit = {"limit": readers}
        context.update(file_io_concurrency=limit, data_copy_concurrency=limit)
    return {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": os.path.realpath(_utf8(path))},  # TensorStore refuses "../x"
        "context": context,
    }


def _utf8(path: Path) -> str:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{path}: not UTF-8, and TensorStore opens nothing else; rename it, or give a link to it of another name"
        ) from error
    return str(path)
