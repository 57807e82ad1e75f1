"""Reading C4's files: one JSON object per line with the document in "text", gzipped (``.json.gz``) or not.

As in the reference (facts a.4), a file that ends in ``.gz`` is decompressed, several gzip members in one file
included, and only the key ``text`` is used.
"""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stage.errors import InputError

BATCH_BYTES = 1 << 18
LONGEST_LINE_BYTES = 1 << 28


@dataclass(frozen=True)
class Batch:
    """Lines of one file, for one worker."""

    path: Path
    first_line: int
    """Number of the first line in the file, from 1."""
    lines: list[bytes]
    read_bytes: int
    """Bytes of the file on disk that were read for it."""


class HashedFile(io.RawIOBase):
    """A file that is read once, from beginning to end, and hashed on the way."""

    def __init__(self, path: Path) -> None:
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
def lines_of(path: Path, source: HashedFile) -> Iterator[BinaryIO]:
    """The decompressed bytes of ``source``, to be read by lines."""
    buffered = io.BufferedReader(source, BATCH_BYTES)
    try:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=buffered) as stream:
                yield stream  # type: ignore[misc]
        else:
            yield buffered
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: truncated or damaged gzip file ({error}); fetch it again") from error


def batches_of(path: Path, source: HashedFile) -> Iterator[Batch]:
    """Batches of about 256 KiB of whole lines, in the file's order."""
    first_line, reported = 1, 0
    with lines_of(path, source) as stream:
        while lines := _some_lines(stream):
            if len(lines[-1]) > LONGEST_LINE_BYTES:
                where = f"{path}:{first_line + len(lines) - 1}"
                raise InputError(f"{where}: a line of more than {LONGEST_LINE_BYTES} bytes; C4 has none of 1 MB")
            yield Batch(path, first_line, lines, source.position - reported)
            first_line, reported = first_line + len(lines), source.position


def _some_lines(stream: BinaryIO) -> list[bytes]:
    lines: list[bytes] = []
    size = 0
    while size < BATCH_BYTES and (line := stream.readline(LONGEST_LINE_BYTES + 1)):
        lines.append(line)
        size += len(line)
    return lines


def text_of(line: bytes, where: str) -> str:
    """The document in one line. ``where`` names file and line for the error."""
    try:
        fields = json.loads(line)
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise InputError(f"{where}: not a JSON object ({error})") from error
    text = fields.get("text") if isinstance(fields, dict) else None
    if not isinstance(text, str):
        raise InputError(f'{where}: no "text" with a string in this line')
    return text


def require_files(paths: list[Path]) -> None:
    """Raise InputError for the first path that is not a file."""
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
