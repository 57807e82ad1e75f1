"""Where text comes from: local files, standard input, objects on a server; hashed and decompressed while they are read.

A name that ends in ``.gz`` or ``.zst`` is decompressed, several members in one file included; standard input (``-``) is
looked at for what it begins with.
"""

import functools
import hashlib
import io
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from isal import igzip, isal_zlib

from data_prep.corpus.remote_input import RemoteBytes
from stage.errors import InputError
from stage.optional_packages import import_optional
from stage.remote.object_address import is_address
from stage.remote.remote_file import RemoteFile

InputFile = Path | RemoteFile
STDIN = "-"
READ_BYTES = 1 << 18
ADDRESS = re.compile(r"(?:gs|s3|https?):/")
GZIP_DAMAGE: Any = (EOFError, igzip.BadGzipFile, isal_zlib.error)
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ZSTD_READ_BYTES = 1 << 11
"""Of zstd data at a time, of which four bytes may become 128 KiB: what they become stays below 64 MiB."""
LARGEST_ZSTD_WINDOW = 1 << 27
"""128 MiB, what ``zstd`` itself takes unless asked for ``--long``: memory that a frame of 10 bytes could ask for."""


@dataclass(frozen=True)
class SourceFile:
    """An input file as it was when it was read."""

    path: str
    bytes: int
    """0 for standard input, and where a server does not tell."""
    mtime_ns: int
    """0 for what lies elsewhere, and has a version."""
    version: str | None = None
    """What its server calls this content, where it does (``stage/remote``)."""

    @property
    def is_remote(self) -> bool:
        return is_address(self.path)


@functools.cache
def _this_call() -> int:
    """What is known to no later call, in which a file may be another one by then."""
    return time.time_ns()


@functools.cache
def _standard_input() -> int:
    """A handle that worker processes, whose own standard input is closed, inherit."""
    return os.dup(0)


def source_of(path: InputFile) -> SourceFile:
    """Raises OSError where there is no such file. Of a remote one, as it was described."""
    if isinstance(path, RemoteFile):
        version = path.facts.version
        return SourceFile(str(path), path.facts.bytes or 0, 0 if version is not None else _this_call(), version)
    if str(path) == STDIN:
        _standard_input()
        return SourceFile(STDIN, 0, time.time_ns())  # what comes next time is another input
    found = path.stat()
    return SourceFile(str(path), found.st_size, found.st_mtime_ns)


def require_files(paths: Sequence[Path]) -> None:
    """Raise InputError for the first path that is not a file."""
    for path in paths:
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as error:
            reason = "no such file" if isinstance(error, FileNotFoundError | NotADirectoryError) else error
            if ADDRESS.match(str(path)):
                reason = "only text is read from an address; download it first"
            raise InputError(f"{path}: {reason}") from error
        if not stat.S_ISREG(mode):
            raise InputError(f"{path}: not a regular file")


class HashedFile(io.RawIOBase):
    """A file that is read once, from beginning to end, and hashed on the way."""

    def __init__(self, path: InputFile) -> None:
        self._file: io.RawIOBase
        if isinstance(path, RemoteFile):
            self._file = RemoteBytes(path)
        elif str(path) == STDIN:
            self._file = io.FileIO(_standard_input(), closefd=False)
        else:
            self._file = path.open("rb", buffering=0)
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        count = self._file.readinto(buffer) or 0
        self.md5.update(memoryview(buffer)[:count])
        self.position += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def decompressed(path: InputFile, source: io.RawIOBase) -> Iterator[BinaryIO]:
    """The decompressed bytes of ``source``, which is ``path`` opened. Raises InputError for a damaged file."""
    buffered = io.BufferedReader(source, READ_BYTES)
    kind = _compression(path, buffered)
    if kind == "zstd":
        with _decompressed_zstd(path, buffered) as stream:
            yield stream
    elif kind == "gzip":
        try:
            if not buffered.peek(1):
                raise EOFError("it is empty")
            with igzip.GzipFile(fileobj=buffered) as stream:
                yield stream
        except GZIP_DAMAGE as error:
            raise InputError(f"{path}: truncated or damaged gzip file ({error}); fetch it again") from error
    else:
        yield buffered


def _compression(path: InputFile, buffered: Any) -> str | None:
    if str(path) != STDIN:
        return {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    beginning = buffered.peek(len(ZSTD_MAGIC))
    return "gzip" if beginning.startswith(GZIP_MAGIC) else "zstd" if beginning.startswith(ZSTD_MAGIC) else None


@contextmanager
def _decompressed_zstd(path: InputFile, buffered: Any) -> Iterator[BinaryIO]:
    zstandard = import_optional("zstandard", "zstandard", f"{path}")
    if not buffered.peek(1):
        raise InputError(f"{path}: truncated or damaged zstd file (it is empty); fetch it again")
    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_ZSTD_WINDOW)
    try:
        with _WholeFrames(decompressor, buffered) as stream:
            yield io.BufferedReader(stream, READ_BYTES)
    except (EOFError, zstandard.ZstdError) as error:
        raise InputError(f"{path}: truncated or damaged zstd file ({error}); fetch it again") from error


class _WholeFrames(io.RawIOBase):
    """What the frames of a file hold, one after the other. Unlike zstandard's, it tells a half frame from the end.

    Raises EOFError for a file that ends within a frame.
    """

    def __init__(self, decompressor: Any, source: Any) -> None:
        self._decompressor, self._source = decompressor, source
        self._frame = decompressor.decompressobj()
        self._at_start = True
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._decompress_more():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decompress_more(self) -> bool:
        """False at the end."""
        if self._frame.eof:
            rest = self._frame.unused_data
            self._frame, self._at_start = self._decompressor.decompressobj(), True
        else:
            rest = b""
        packed = rest or self._source.read1(ZSTD_READ_BYTES)
        if not packed:
            if self._at_start:
                return False
            raise EOFError("it ends within a frame")
        self._at_start = False
        self._ready = memoryview(self._frame.decompress(packed))
        return True


def display_name(path: str | Path) -> str:
    """For messages and lists: what is not UTF-8 in a name, escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
