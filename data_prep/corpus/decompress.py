"""Unpack files of gzip or zstd while they are read, including files of several members.

The ending of the name says how a file is packed: ``.gz``, ``.zst`` (needs zstandard), any other file is not packed.
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
"""Packed bytes read at a time: four may become 128 KiB, so the contents of 2 KiB stay below 64 MiB."""
LARGEST_ZSTD_WINDOW = 1 << 27
"""Most bytes of a window: 128 MiB, the limit of ``zstd`` without ``--long``; a frame of 10 bytes could request more."""


@contextmanager
def decompressed(name: str, file: io.RawIOBase) -> Iterator[BinaryIO]:
    """Yield the unpacked bytes of ``file``, whose name is ``name``.

    Raises InputError for a file that is damaged or cut off; a reader that reaches the end has read all of it.
    """
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
            yield io.BufferedReader(BlockFile(_zstd_blocks(zstandard, buffered)), READ_BYTES)
    except damage as error:
        raise InputError(f"{name}: truncated or damaged {kind} file ({error}); fetch it again") from error


class BlockFile(io.RawIOBase):
    """Blocks of bytes of any size, as a file that is read once."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        while not self._rest:
            if (block := next(self._blocks, None)) is None:
                return 0
            self._rest = memoryview(block)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _zstd_blocks(zstandard: Any, packed: io.BufferedReader) -> Iterator[bytes]:
    """Yield the content of all frames. Unlike zstandard's reader, raise EOFError if a frame is cut off."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=LARGEST_ZSTD_WINDOW)
    rest = packed.read1(ZSTD_READ_BYTES)
    while rest:
        frame = unpacker.decompressobj()
        while not frame.eof:
            if not rest:
                raise EOFError("it ends within a frame")
            yield frame.decompress(rest)
            rest = frame.unused_data or packed.read1(ZSTD_READ_BYTES)
