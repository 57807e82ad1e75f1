"""MD5 digests: the published sums are MD5, so ours are too."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

BLOCK_BYTES = 1 << 20


def md5_file(path: Path, advance: Callable[[float], None] | None = None) -> str:
    """Hex MD5 of a file's bytes; ``advance`` is told of every block's size in bytes."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        # A checkpoint has 100,000 small files: do not allocate a whole block for each.
        buffer_bytes = min(BLOCK_BYTES, os.fstat(file.fileno()).st_size + 1)
        while block := file.read(buffer_bytes):
            digest.update(block)
            if advance is not None:
                advance(len(block))
    return digest.hexdigest()


def md5_text(text: str) -> str:
    """Hex MD5 of a text in UTF-8."""
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
