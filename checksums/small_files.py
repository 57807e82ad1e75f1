"""The two small files of a Megatron zarr checkpoint, whose sums may differ: whether they are still what they should be.

``common.pt`` is looked at without running or building anything of it.
"""

import pickletools
import zipfile
from pathlib import Path

from stage.limits.bounded_reading import read_small_json

LARGEST_SMALL_FILE = 1 << 24
"""Bytes; the published ones have 28 and 631."""
COMMON_WORDS = {"optimizer", "param_groups", "step", "lr", "betas"}
"""Of the keys in ``common.pt`` (docs/facts/reference.md f.3)."""


def is_sound_small_file(path: Path) -> bool:
    """Whether a ``metadata.json`` says that a checkpoint is of zarr arrays, or a ``common.pt`` has an optimizer."""
    try:
        if path.stat().st_size > LARGEST_SMALL_FILE:
            return False
        return _is_metadata(path) if path.suffix == ".json" else _is_common(path)
    except Exception:  # a damaged file can raise anything: zlib's errors, wrong numbers, unknown pickle operations
        return False


def _is_metadata(path: Path) -> bool:
    return bool(read_small_json(path, LARGEST_SMALL_FILE)["sharded_backend"] == "zarr")


def _is_common(path: Path) -> bool:
    """An archive of ``torch.save`` that is whole, by its own sums, and whose pickle holds the words."""
    with zipfile.ZipFile(path) as archive:
        (entry,) = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
        if entry.file_size > LARGEST_SMALL_FILE or entry.compress_type or archive.testzip() is not None:
            return False
        operations = pickletools.genops(archive.read(entry))
        return {argument for _, argument, _ in operations if isinstance(argument, str)} >= COMMON_WORDS
