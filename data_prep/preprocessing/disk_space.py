"""The disk that a dataset needs while it is made: the parts of its inputs, and the dataset joined from them."""

import errno
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from data_prep.corpus.input_files import InputFile
from foundation.errors import InputError
from foundation.sizes import size_text

TOKENS_PER_PACKED_BYTE, TOKENS_PER_BYTE = 0.6, 0.25
"""Tokens of a byte of English, .gz or .zst and plain: C4's 256 shards have 76 GB, 200 GB of text and 44e9 tokens."""
INDEX_BYTES_PER_DOCUMENT = 20
FULL = (errno.ENOSPC, errno.EDQUOT)


def warn_of_space(folder: Path, files: Sequence[InputFile], token_bytes: int) -> None:
    """Print a line if the disk has less free space than parts and dataset of ``files`` take, by an estimate."""
    tokens = sum(
        file.source.bytes * (TOKENS_PER_PACKED_BYTE if str(file).endswith((".gz", ".zst")) else TOKENS_PER_BYTE)
        for file in files
    )
    required_bytes, free_bytes = 2 * tokens * token_bytes, _free_bytes(folder)
    if free_bytes < required_bytes:
        print(
            f"{folder}: {size_text(free_bytes)} are free; the dataset and its parts take about "
            f"{size_text(required_bytes)} while it is made",
            file=sys.stderr,
        )


def require_space(folder: Path, tokens: int, documents: int, dtype: np.dtype[np.generic]) -> None:
    """Raise InputError if the disk has no room for a dataset beside its finished parts."""
    required_bytes, free_bytes = tokens * dtype.itemsize + INDEX_BYTES_PER_DOCUMENT * documents, _free_bytes(folder)
    if free_bytes < required_bytes:
        raise InputError(
            f"{folder}: {size_text(free_bytes)} are free, and the dataset takes {size_text(required_bytes)} beside its "
            "finished parts; free some space, then run the same command again, which only joins them"
        )


def _free_bytes(folder: Path) -> int:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


@contextmanager
def full_disk_told(prefix: Path) -> Iterator[None]:
    """Raise InputError with a remedy for a full disk, whose OSError names a file of no meaning to the user."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise InputError(
            f"{prefix.parent}: {error.strerror}; finished parts stay in {prefix.name}.partial: free some space, then "
            "run the same command again"
        ) from error
