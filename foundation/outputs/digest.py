"""MD5 digests: the published sums are MD5, so ours are MD5, too."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

BLOCK_BYTES = 1 << 18
"""Bytes read at once; they stay in a core's cache between reading and hashing."""
SAMPLES, SAMPLE_BYTES = 1024, 1 << 14
"""Number of samples of a large file, and the bytes of each: 16 MiB together, a second on a slow disk."""


def md5_file(path: Path, advance: Callable[[float], None] | None = None) -> str:
    """Return the MD5 of a file's bytes in hexadecimal; ``advance`` is told every block's size in bytes."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            if advance is not None:
                advance(len(block))
    return digest.hexdigest()


def md5_samples(path: Path, samples: int = SAMPLES) -> str:
    """Return the MD5 of a file's size and of ``samples`` parts of it, spread evenly, including its beginning and end.

    A file that is no larger than these together is read whole. This distinguishes files in a second, whatever their
    size, but not a file from a copy in which a few bytes were changed.
    """
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"{size}\n".encode())
        if size <= samples * SAMPLE_BYTES:
            digest.update(file.read())
            return digest.hexdigest()
        for number in range(samples):
            position = number * (size - SAMPLE_BYTES) // max(1, samples - 1)
            digest.update(os.pread(file.fileno(), SAMPLE_BYTES, position))
    return digest.hexdigest()


def md5_text(text: str) -> str:
    """Return the MD5 of a text in UTF-8, in hexadecimal."""
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
