"""Reading C4's files: one JSON object per line with the document in "text", gzipped (``.json.gz``) or not.

As in the reference (docs/facts/reference.md a.4), a file that ends in ``.gz`` is decompressed, several gzip members in
one file included, and only the key ``text`` is used.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from isal import igzip, isal_zlib

from stage.errors import InputError

BLOCK_BYTES = 1 << 20
READ_BYTES = 1 << 18
LONGEST_LINE_BYTES = 1 << 24
DAMAGE: Any = (EOFError, igzip.BadGzipFile, isal_zlib.error)


class BadLine(InputError):
    """One line is not a document. The message begins with file and line."""


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of one file."""

    first_line: int
    """Number of the first one in the file, from 1."""
    data: bytes
    read_bytes: int
    """Bytes of the file on disk that were read for it."""

    def lines(self) -> list[bytes]:
        return self.data.removesuffix(b"\n").split(b"\n")


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
def decompressed(path: Path, source: io.RawIOBase) -> Iterator[BinaryIO]:
    """The decompressed bytes of ``source``, which is ``path`` opened. Raises InputError for a damaged file."""
    buffered = io.BufferedReader(source, READ_BYTES)
    try:
        if path.suffix == ".gz":
            if not buffered.peek(1):
                raise EOFError("it is empty")
            with igzip.GzipFile(fileobj=buffered) as stream:
                yield stream
        else:
            yield buffered
    except DAMAGE as error:
        raise InputError(f"{path}: truncated or damaged gzip file ({error}); fetch it again") from error


def blocks_of(path: Path, source: HashedFile) -> Iterator[LineBlock]:
    """The file as blocks of about 1 MiB of whole lines, the last of which may lack its newline."""
    first_line, reported, rest = 1, 0, b""
    with decompressed(path, source) as stream:
        while piece := stream.read(BLOCK_BYTES):
            head, newline, tail = piece.rpartition(b"\n")
            if not newline:
                rest += tail
                if len(rest) > LONGEST_LINE_BYTES:
                    where = f"{path}:{first_line}"
                    raise InputError(f"{where}: a line of more than {LONGEST_LINE_BYTES} bytes; C4 has none of 1 MB")
                continue
            data = b"".join((rest, head, newline))
            yield LineBlock(first_line, data, source.position - reported)
            first_line, reported, rest = first_line + data.count(b"\n"), source.position, tail
    if rest:
        yield LineBlock(first_line, rest, source.position - reported)


def text_of(line: bytes, where: str) -> str:
    """The document in one line. ``where`` names file and line for the error."""
    try:
        fields = orjson.loads(line)
    except ValueError:
        fields = _python_json(line, where)  # the reference's reader, which takes a little more
    text = fields.get("text") if isinstance(fields, dict) else None
    if not isinstance(text, str):
        raise BadLine(f'{where}: no "text" with a string in this line')
    return text


def utf8_of(line: bytes, where: str) -> bytes:
    """The document in one line, as UTF-8."""
    try:
        return text_of(line, where).encode()
    except UnicodeEncodeError as error:
        raise BadLine(f"{where}: the text holds a lone surrogate, which no tokenizer can encode") from error


def _python_json(line: bytes, where: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise BadLine(f"{where}: not a JSON object ({error})") from error


def documents_of(path: Path) -> Iterator[tuple[bytes, str]]:
    """Every line of a file and the document in it."""
    source = HashedFile(path)
    for block in blocks_of(path, source):
        for number, line in enumerate(block.lines(), block.first_line):
            yield line, text_of(line, f"{path}:{number}")
    source.close()


def require_files(paths: Sequence[Path]) -> None:
    """Raise InputError for the first path that is not a file."""
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
