"""Quick checks of token files that no manifest and no list of sums describes: damage, and ids of another tokenizer."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, read_header
from foundation.disk_answers import file_is_there

BLOCKS, BLOCK_BYTES = 1024, 1 << 14
"""Number of blocks of a large file that are read, and the bytes of each: 16 MiB together."""
ENOUGH_TOKENS = 1_000_000
"""Tokens of a text among which ids from the upper half of its vocabulary occur for certain."""


def token_problem(path: Path, dtype: np.dtype[Any], vocab_size: int) -> str | None:
    """Describe the first block of a ``.bin`` file that is all zeros or holds an id beyond the vocabulary; or that all
    ids belong to a vocabulary of less than half the size.

    Blocks are spread evenly over the file, including its beginning and end; a small file is read whole. Returns None if
    nothing is wrong.
    """
    if np.iinfo(dtype).max < vocab_size - 1:
        return f"{path}: ids of {dtype.name}, but the vocabulary has {vocab_size}: it was made with another tokenizer"
    largest_id, num_tokens = 0, 0
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        last_start = max(0, size - BLOCK_BYTES)
        starts = range(0, size, BLOCK_BYTES)
        if len(starts) > BLOCKS:
            starts = range(0, last_start + 1, max(1, last_start // (BLOCKS - 1)))
        for start in sorted({*(offset // dtype.itemsize * dtype.itemsize for offset in starts), last_start}):
            block = os.pread(file.fileno(), BLOCK_BYTES, start)
            ids = np.frombuffer(block[: len(block) // dtype.itemsize * dtype.itemsize], dtype)
            if len(block) == BLOCK_BYTES and not ids.any():
                return (
                    f"{path}: bytes {start:,} to {start + len(block) - 1:,} are zeros, not tokens of a text: the file "
                    "is damaged or was not copied whole"
                )
            if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
                token = int(ids.max()) if int(ids.max()) >= vocab_size else int(ids.min())
                return (
                    f"{path}: holds token {token}, but the vocabulary has {vocab_size}: it was made with another "
                    "tokenizer, or is damaged"
                )
            largest_id, num_tokens = max(largest_id, int(ids.max(initial=0))), num_tokens + len(ids)
    if num_tokens >= ENOUGH_TOKENS and largest_id < vocab_size // 2:
        return (
            f"{path}: the largest of {num_tokens:,} ids is {largest_id}, but the vocabulary has {vocab_size}: it was "
            "made with another tokenizer"
        )
    return None


def require_index(path: Path) -> None:
    """Raise InputError if an ``.idx`` file is no index, or does not fit the ``.bin`` file beside it."""
    prefix = path.with_suffix("")
    if file_is_there(bin_path(prefix)):
        IndexedDataset(prefix).require_whole()
    else:
        read_header(path)
