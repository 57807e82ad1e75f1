"""MD5 digests: the published sums are MD5, so ours are too."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

BLOCK_BYTES = 1 << 18
"""Stays in a core's cache between reading and hashing."""
SAMPLES, SAMPLE_BYTES = 1024, 1 << 14
"""Places of a large file that are looked at, and how much at each: 16 MiB together, a second on a slow disk."""


def md5_file(path: Path | str, advance: Callable[[float], None] | None = None) -> str:
    """Hex MD5 of a file's bytes; ``advance`` is told of every block's size in bytes."""
    return md5_files([path], advance)[0]


def md5_files(paths: Sequence[Path | str], advance: Callable[[float], None] | None = None) -> list[str]:
    """The same for several files, open all at once: the disk is asked for all of them before the first is hashed.

    A checkpoint has 100,000 files, many of them small; one after the other, each would wait for the disk.
    """
    handles: list[int] = []
    try:
        for path in paths:
            handles.append(os.open(path, os.O_RDONLY))
            os.posix_fadvise(handles[-1], 0, BLOCK_BYTES, os.POSIX_FADV_WILLNEED)
        return [_md5(handle, path, advance) for handle, path in zip(handles, paths, strict=True)]
    finally:
        for handle in handles:
            os.close(handle)


def _md5(handle: int, path: Path | str, advance: Callable[[float], None] | None) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        while block := os.read(handle, BLOCK_BYTES):
            digest.update(block)
            if advance is not None:
                advance(len(block))
    except OSError as error:  # os.read does not know the name: a folder, a bad disk
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
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
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
            return digest.hexdigest()
        for number in range(samples):
            place = number * (size - SAMPLE_BYTES) // max(1, samples - 1)
            digest.update(os.pread(file.fileno(), SAMPLE_BYTES, place))
    return digest.hexdigest()


def md5_head_and_tail(path: Path) -> str:
    """Hex MD5 of the first and the last SAMPLE_BYTES of a file, and of as many in its middle."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for place in (0, max(0, size - SAMPLE_BYTES) // 2, max(0, size - SAMPLE_BYTES)):
            digest.update(os.pread(file.fileno(), SAMPLE_BYTES, place))
    return digest.hexdigest()


def md5_text(text: str) -> str:
    """Hex MD5 of a text in UTF-8."""
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
