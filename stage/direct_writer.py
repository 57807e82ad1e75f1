"""Appending to a large file past the page cache, whose fresh pages cost more time than all else in copying."""

import errno
import fcntl
import mmap
import os
from pathlib import Path

BLOCK_BYTES = 1 << 22


class DirectWriter:
    """A new file, written in blocks of 4 MiB; through the page cache where the file system knows no other way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._block = memoryview(mmap.mmap(-1, BLOCK_BYTES))  # begins at a page, as direct writes have to
        self._filled = 0
        self._knows_direct = True

    def write(self, data: memoryview) -> None:
        """Append ``data``. Raises OSError, which names the file, as when the disk is full."""
        data = data.cast("B")
        while len(data):
            count = min(len(data), BLOCK_BYTES - self._filled)
            self._block[self._filled : self._filled + count] = data[:count]
            self._filled += count
            data = data[count:]
            if self._filled == BLOCK_BYTES:
                self._write_block(direct=True)

    def flush(self) -> None:
        """Write what is left. Last of all: what follows would no longer begin at a page."""
        self._write_block(direct=False)

    def close(self) -> None:
        os.close(self._handle)

    def _write_block(self, *, direct: bool) -> None:
        self._set_direct(direct)
        rest = self._block[: self._filled]
        while len(rest):
            try:
                rest = rest[os.write(self._handle, rest) :]
            except OSError as refused:
                if refused.errno != errno.EINVAL or not self._knows_direct:
                    raise OSError(refused.errno, refused.strerror, str(self._path)) from refused
                self._knows_direct = False
                self._set_direct(False)
        self._filled = 0

    def _set_direct(self, wanted: bool) -> None:
        flags = fcntl.fcntl(self._handle, fcntl.F_GETFL) & ~os.O_DIRECT
        try:
            fcntl.fcntl(self._handle, fcntl.F_SETFL, flags | (os.O_DIRECT if wanted and self._knows_direct else 0))
        except OSError as refused:
            if refused.errno != errno.EINVAL:
                raise
            self._knows_direct = False
