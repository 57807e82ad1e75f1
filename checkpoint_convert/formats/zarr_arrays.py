"""Zarr v2 arrays, one per folder, through TensorStore."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorstore as ts

from stage.errors import InputError


def open_array(path: Path, *, readers: int | None = None) -> Any:
    """Open an existing array for reading, at most ``readers`` chunks at the same time.

    Raises InputError where there is none or its metadata is damaged.
    """
    if not (path / ".zarray").is_file():
        raise InputError(f"{path}: array is missing (no .zarray in it)")
    try:
        return ts.open(_spec(path, readers), open=True, read=True).result()
    except ValueError as error:
        raise InputError(f"{path}: not a zarr array ({str(error).splitlines()[0]})") from error


def create_array(
    path: Path, shape: Sequence[int], dtype: str, chunks: Sequence[int], compressor: dict[str, Any] | None = None
) -> Any:
    """Create an array, or open the same one; ``dtype`` is float32 or bfloat16."""
    spec = _spec(path)
    spec["metadata"] = {
        "dtype": {"float32": "<f4", "bfloat16": "bfloat16"}[dtype],
        "shape": list(shape),
        "chunks": list(chunks),
        "compressor": compressor,
    }
    return ts.open(spec, create=True, open=True).result()


def _spec(path: Path, readers: int | None = None) -> dict[str, Any]:
    # Without file_io_sync TensorStore syncs every chunk and its folder; whoever publishes the folder syncs it once.
    context: dict[str, Any] = {"file_io_sync": False}
    if readers is not None:
        limit = {"limit": readers}
        context.update(file_io_concurrency=limit, data_copy_concurrency=limit)
    return {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(path)},
        "context": context,
    }
