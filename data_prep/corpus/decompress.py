"""Files packed by gzip or zstd, unpacked while they are read, several members in one file included.

The ending of the name tells how a file is packed: ``.gz``, ``.zst`` (needs zstandard), anything else is not packed.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from isal import igzip, isal_zlib

from stage.errors import InputError
from stage.optional_packages import import_optional

READ_BYTES = 1 << 18
ZSTD_READ_BYTES = 1 << 11
"""Packed bytes at a time: four may become 128 KiB, so what 2 KiB become stays below 64 MiB."""
LARGEST_ZSTD_WINDOW = 1 << 27
"""128 MiB, the limit of ``zstd`` itself unless asked for ``--long``: memory that a frame of 10 bytes could ask for."""


@contextmanager
def decompressed(name: str, file: io.RawIOBase) -> Iterator[BinaryIO]:
    """Yield the unpacked bytes of ``file``; ``name`` is its name. Raises InputError for a file that is damaged or cut
    off; whoever reads it to the end has read all of it."""
    buffered: Any = io.BufferedReader(file, READ_BYTES)
    kind = "gzip" if name.endswith(".gz") else "zstd" if name.endswith(".zst") else None
    if kind is None:
        yield buffered
        return
    damage: Any = (EOFError, igzip.BadGzipFile, isal_zlib.error)
    try:
        if not buffered.peek(1):
            raise EOFError("it is empty")
        if kind == "gzip":
            with igzip.GzipFile(fileobj=buffered) as unpacked:
                yield unpacked
        else:
            zstandard = import_optional("zstandard", "zstandard", name)
            damage = (EOFError, zstandard.ZstdError)
            yield io.BufferedReader(_ZstdFrames(zstandard, buffered), READ_BYTES)
    except damage as error:
        raise InputError(f"{name}: truncated or damaged {kind} file ({error}); fetch it again") from error


class _ZstdFrames(io.RawIOBase):
    """The content of all frames of a file. Unlike zstandard's reader it raises EOFError where a frame is cut off."""

    def __init__(self, zstandard: Any, packed: Any) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_ZSTD_WINDOW)
        self._packed = packed
        self._frame: Any = None
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        while not self._rest:
            following = self._frame.unused_data if self._frame is not None and self._frame.eof else b""
            packed = following or self._packed.read1(ZSTD_READ_BYTES)
            if self._frame is None or self._frame.eof:
                if not packed:
                    return 0
                self._frame = self._decompressor.decompressobj()
            elif not packed:
                raise EOFError("it ends within a frame")
            self._rest = memoryview(self._frame.decompress(packed))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
