"""Input files of text, local or at an address: each is identified once, hashed while it is read, and unpacked.

A process that has read from an address cannot be forked (``foundation.network.remote_folder``). So
:func:`describe_inputs` asks for addresses in a process of its own, and nothing is read from them before
:meth:`InputFile.open`.

The ending of the name says how a file is packed: ``.gz``, ``.zst`` (needs zstandard), any other file is not packed.
"""

import hashlib
import io
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from isal import igzip, isal_zlib

from foundation.cli import OutputOptions
from foundation.disk_answers import file_is_there, folder_is_there, is_there
from foundation.errors import InputError
from foundation.network.addresses import Address, is_address, parse_address
from foundation.network.object_store import ObjectFacts
from foundation.network.remote_folder import RemoteFolder, facts_of_all
from foundation.optional_packages import import_optional
from foundation.outputs.manifest import ASKED_AT_ONCE, Source, source_of
from foundation.sizes import parse_bytes

Location = Path | Address
READ_BYTES = 1 << 18
ZSTD_READ_BYTES = 1 << 11
"""Packed bytes read at a time: four may become 128 KiB, so the contents of 2 KiB stay below 64 MiB."""
LARGEST_ZSTD_WINDOW = 1 << 27
"""Most bytes of a window: 128 MiB, the limit of ``zstd`` without ``--long``; a frame of 10 bytes could request more."""


@dataclass(frozen=True)
class InputFile:
    """An input file as it was when the command began."""

    location: Location
    source: Source
    """Name, size and identity of the content."""
    facts: ObjectFacts | None = None
    """The server's answer; None for a local file."""
    bytes_per_s: float | None = None
    """Most bytes per second that are read from an address."""

    def __str__(self) -> str:
        return self.source.name

    def open(self) -> "HashedFile":
        """Open the file, to be read once. While it is read, InputError is raised if a server fails or the file has
        changed."""
        if isinstance(self.location, Path):
            return HashedFile(io.FileIO(self.location))
        folder = RemoteFolder(self.location, bytes_per_s=self.bytes_per_s)
        return HashedFile(BlockFile(folder.stream(expected=self.facts)))

    def source_now(self) -> Source:
        """Identify the file again. For an address this is the first answer, because a server reports a change at each
        read."""
        return source_of(self.location) if isinstance(self.location, Path) else self.source


class BlockFile(io.RawIOBase):
    """Blocks of bytes of any size, as a file that is read once."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._unread = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        while not self._unread:
            if (block := next(self._blocks, None)) is None:
                return 0
            self._unread = memoryview(block)
        count = min(len(buffer), len(self._unread))
        buffer[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count


class HashedFile(io.RawIOBase):
    """A file that is read once, from beginning to end, and hashed meanwhile."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self.md5 = hashlib.md5(usedforsecurity=False)
        """MD5 of all bytes read so far."""
        self.position = 0
        """Number of bytes read so far."""

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


def parse_inputs(texts: Sequence[str], endpoint_url: str | None = None) -> list[Location]:
    """Parse paths and addresses. Raises InputError for an address that cannot be read, and for an ``endpoint_url``
    without any address."""
    if endpoint_url is not None and not any(map(is_address, texts)):
        raise InputError("--endpoint-url is for inputs with an address, of which there is none")
    return [
        parse_address(text, endpoint_url if text.lower().startswith("s3:") else None)
        if is_address(text)
        else Path(text)
        for text in texts
    ]


def describe_inputs(
    locations: Sequence[Location], *, bandwidth_limit: str | None = None, at_once: int = 1
) -> list[InputFile]:
    """Identify all inputs as they are now.

    ``bandwidth_limit``: a size such as "500MB" that may be read from addresses in a second, divided evenly among the
    ``at_once`` files that are read at the same time. Raises InputError for the first input that is no file or cannot be
    had. Prints a line if a server sends nothing that identifies a file's content.
    """
    paths = [location for location in locations if isinstance(location, Path)]
    addresses = [location for location in locations if isinstance(location, Address)]
    require_files(paths)
    if bandwidth_limit is not None and not addresses:
        raise InputError("--bandwidth-limit is for inputs with an address, of which there is none")
    limit = None if bandwidth_limit is None else parse_bytes(bandwidth_limit, "--bandwidth-limit")
    bytes_per_s = None if limit is None else limit / max(1, min(at_once, len(addresses)))
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        files = {path: InputFile(path, source) for path, source in zip(paths, pool.map(source_of, paths), strict=True)}
    remote = {
        address: InputFile(address, Source(str(address), 1, facts.bytes, f"etag:{facts.version}"), facts, bytes_per_s)
        for address, facts in zip(addresses, facts_of_all(addresses) if addresses else [], strict=True)
    }
    input_files = [files[location] if isinstance(location, Path) else remote[location] for location in locations]
    unknown = [file for file in input_files if file.facts is not None and not file.facts.version]
    if unknown:
        print(
            f"{unknown[0]}: sends neither ETag nor time of modification, so nobody can say whether it changes "
            f"({len(unknown):,} such files); --md5-list compares the bytes that were read",
            file=sys.stderr,
        )
    return input_files


def local_paths(files: Sequence[InputFile]) -> list[Path]:
    """Return the paths of the local files."""
    return [file.location for file in files if isinstance(file.location, Path)]


def require_files(paths: Sequence[Path]) -> None:
    """Raise InputError for the first path that is not a regular file."""
    for path in paths:
        if not file_is_there(path):
            kind = "a folder" if folder_is_there(path) else "not a regular file"
            raise InputError(f"{path}: {f'{kind}; expected a file' if is_there(path) else 'no such file'}")


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


def _zstd_blocks(zstandard: Any, packed: io.BufferedReader) -> Iterator[bytes]:
    """Yield the content of all frames. Unlike zstandard's reader, raise EOFError if a frame is cut off."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=LARGEST_ZSTD_WINDOW)
    packed_bytes = packed.read1(ZSTD_READ_BYTES)
    while packed_bytes:
        frame = unpacker.decompressobj()
        while not frame.eof:
            if not packed_bytes:
                raise EOFError("it ends within a frame")
            yield frame.decompress(packed_bytes)
            packed_bytes = frame.unused_data or packed.read1(ZSTD_READ_BYTES)


@dataclass(frozen=True, kw_only=True)
class InputOptions(OutputOptions):
    """A command that reads text in C4's format."""

    input: tuple[str, ...]
    """Files of JSON lines with a "text" each, also packed (.gz, .zst); by path or by address: s3://, gs://, http:// or
    https://."""
    endpoint_url: str | None = None
    """The address of an S3 server that is not Amazon's, such as http://127.0.0.1:9000."""
    bandwidth_limit: str | None = None
    """Most bytes that this command reads from addresses per second: a size such as 500MB, divided evenly among the
    files that are read at the same time."""

    def locations(self) -> Sequence[Location]:
        """Return the inputs. Raises InputError for an address that cannot be read."""
        return parse_inputs(self.input, self.endpoint_url)
