"""MD5 digests: the published sums are MD5, so ours are too."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

BLOCK_BYTES = 1 << 18
"""Stays in a core's cache between reading and hashing."""
SAMPLES, SAMPLE_BYTES = 1024, 1 << 14
"""Places of a large file that are looked at, and how much at each: 16 MiB together, a second on a slow disk."""


def md5_file(path: Path, advance: Callable[[float], None] | None = None) -> str:
    """Hex MD5 of a file's bytes; ``advance`` is told of every block's size in bytes."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            if advance is not None:
                advance(len(block))
    return digest.hexdigest()


def md5_samples(path: Path, samples: int = SAMPLES) -> str:
    """Hex MD5 of a file's size and of ``samples`` pieces spread evenly over it, its beginning and end among them; of
    the whole file where that is not more.

    Tells one file from another in a second, whatever its size; not one from a copy in which a few bytes were changed.
    """
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"{size}\n".encode())
        if size <= samples * SAMPLE_BYTES:
            digest.update(file.read())
            return digest.hexdigest()
        for number in range(samples):
            place = number * (size - SAMPLE_BYTES) // max(1, samples - 1)
            digest.update(os.pread(file.fileno(), SAMPLE_BYTES, place))
    return digest.hexdigest()


def md5_text(text: str) -> str:
    """Hex MD5 of a text in UTF-8."""
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
