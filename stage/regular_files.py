"""Strangers' files: only regular ones, never more of them than a bound, and folders in which anything may lie."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

PIECE_BYTES = 1 << 24


class UnfitFile(OSError):
    """A file that is there and is not read: its message says why, in words that follow a path."""


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file, or of what a link leads to.

    Raises UnfitFile for a folder, device, pipe or socket, which could block or never end, and for more than ``most``
    bytes, whatever size the file system tells; OSError where it cannot be opened or read.
    """
    # neither waits for the other end of a pipe, nor becomes the terminal of this process
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitFile(f"{kind_of(status.st_mode)}, not a regular file")
        if status.st_size > most:
            raise UnfitFile(f"{status.st_size:,} bytes, more than {most:,}")
        with os.fdopen(os.dup(handle), "rb") as file:
            read = _read_at_most(file, most + 1)
    finally:
        os.close(handle)
    if read is None:  # some files of /proc
        raise UnfitFile("it gives nothing to read now")
    if len(read) > most:
        raise UnfitFile(f"it grows beyond {most:,} bytes while it is read")
    return read


def _read_at_most(file: BinaryIO, most: int) -> bytes | None:
    """Read piece by piece: asked for all at once, Python takes memory for the most there may be."""
    pieces, left = [], most
    while left and (piece := file.read(min(left, PIECE_BYTES))) != b"":
        if piece is None:
            return None
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def kind_of(mode: int) -> str:
    """file, folder, link or, of what is no file, what it is."""
    kinds = (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "link"),
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "device"),
        (stat.S_ISBLK, "device"),
    )
    return next((name for test, name in kinds if test(mode)), "special file")


def is_regular(path: Path) -> bool:
    """Whether it is a regular file or leads to one; False for what may not be looked at, too."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def is_folder(path: Path) -> bool:
    """Whether it is a folder or leads to one; False for what may not be looked at, too."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class Entry:
    """A file, folder or link below a folder."""

    path: Path
    kind: str
    """file, folder, link, pipe, socket, device or special file; unreadable, where the system does not tell."""
    size: int


def children(folder: Path) -> list[Path]:
    """What lies in a folder, by name; nothing where it may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def walk(folder: Path) -> Iterator[Entry]:
    """Everything below a folder, links not followed; of folders that cannot be read, an entry ``unreadable``.

    Without recursion: folders may lie a thousand deep in each other.
    """
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            paths = sorted(here.iterdir())
        except OSError:
            yield Entry(here, "unreadable", 0)
            continue
        folders = []
        for path in paths:
            try:
                status = path.lstat()
            except OSError:
                yield Entry(path, "unreadable", 0)
                continue
            kind = kind_of(status.st_mode)
            yield Entry(path, kind, status.st_size)
            if kind == "folder":
                folders.append(path)
        waiting += reversed(folders)
