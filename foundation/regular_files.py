"""Read strangers' files: regular ones only, up to a bound, in folders that may hold anything."""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foundation.disk_answers import is_there


class UnfitFile(OSError):
    """A file that exists but is not read: its message gives the reason, in words that follow a path."""


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file, or of the target of a link, up to its present length.

    Raises UnfitFile for a folder, device, pipe or socket, which could block or never end, and for more than ``most``
    bytes; OSError if it cannot be opened or read.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UnfitFile(f"{kind_of(status.st_mode)}, not a regular file")
    if status.st_size > most:
        raise UnfitFile(f"{status.st_size:,} bytes, more than {most:,}")
    with path.open("rb") as file:
        return file.read(status.st_size)


KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def kind_of(mode: int) -> str:
    """Return the kind of file with this mode, in the words of :class:`Entry`."""
    return KINDS.get(stat.S_IFMT(mode), "special file")


def is_regular(path: Path) -> bool:
    """Return whether the path is a regular file or leads to one; False if it may not be looked at."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def folder_fault(path: Path) -> str:
    """Return why a path is no folder, in words."""
    return "a file; expected a folder" if is_there(path) else "no such folder"


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder or leads to one; False if it may not be looked at."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class Entry:
    """A file, folder or link below a folder."""

    path: Path
    kind: str
    """One of: file, folder, link, pipe, socket, device or special file; unreadable, if the system does not tell."""
    size: int


def children(folder: Path) -> list[Path]:
    """Return everything in a folder, by name; nothing if it may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def walk(folder: Path) -> Iterator[Entry]:
    """Yield every entry below a folder, without following links; for a folder that cannot be read, an entry
    ``unreadable``.

    There is no recursion: folders may be nested a thousand deep.
    """
    waiting = [folder]
    while waiting:
        folder_path = waiting.pop()
        try:
            paths = sorted(folder_path.iterdir())
        except OSError:
            yield Entry(folder_path, "unreadable", 0)
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
