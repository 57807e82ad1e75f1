"""Publish files whole: write a file beside its final place under another name, sync it, rename it.

If two processes, on machines that do not see each other, make the same file, each publishes a whole one.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foundation.disk_answers import file_is_there, folder_is_there, name_is_taken
from foundation.errors import InputError
from foundation.grouped_tasks import grouped_map

PARTIAL = ".partial"
SYNCED_AT_ONCE = 32
HEAD_BYTES = 1 << 12
"""Bytes by which the kind of a file to be replaced is recognised."""
NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EROFS)
"""Errors of file systems that have no fsync, of folders or at all: then there is nothing to wait for."""


def sibling(path: Path, ending: str) -> Path:
    """Return ``path`` with ``ending`` behind its name.

    Raises InputError if ``path`` has no name of its own, such as the current folder and the root.
    """
    if path.name in ("", ".."):
        raise InputError(f"{str(path)!r}: has no name of its own that others could begin with; name it from outside")
    return path.with_name(path.name + ending)


def partial_path(path: Path) -> Path:
    """Return ``NAME.partial``, in which an output is made that can be resumed."""
    return sibling(path, PARTIAL)


def unique_partial(path: Path) -> Path:
    """Return a path beside ``path`` that no other process uses: ``NAME.a1b2c3d4.partial``."""
    return sibling(path, f".{secrets.token_hex(4)}{PARTIAL}")


@contextmanager
def published_file(path: Path) -> Iterator[Path]:
    """Yield the path to write to; when the block ends well, sync that file and give it its final name. Raises
    InputError for a folder."""
    if folder_is_there(path):
        raise InputError(f"{path}: a folder; expected the name of a file to write")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = unique_partial(path)
    try:
        yield partial
        sync_to_disk(partial)
        os.replace(partial, path)
        sync_to_disk(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def published_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to fill; when the block ends well, sync all of it and give it its final name.

    An older folder of that name is moved aside and removed once the new one is in its place; the caller must have
    checked that it may be replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = unique_partial(path)
    partial.mkdir()
    try:
        yield partial
        sync_folder(partial)
        replace_path(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def replace_path(new: Path, path: Path, aside: Path | None = None) -> None:
    """Rename ``new``, a file or a folder, to ``path``.

    An existing ``path`` is moved aside first; it comes back if the rename fails, and is removed if it succeeds.
    ``aside`` is a free path in a folder that is removed even if this process is killed; by default it lies beside.
    """
    aside = aside or unique_partial(path)
    with suppress(FileNotFoundError):
        path.rename(aside)
    try:
        new.rename(path)
    except OSError:
        with suppress(FileNotFoundError):
            aside.rename(path)
        raise
    sync_to_disk(path.parent)
    if folder_is_there(aside):
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole."""
    with published_file(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="surrogateescape")


def require_same_kind(path: Path, option: str, kind: str, begins: Callable[[bytes], bool]) -> None:
    """Raise InputError, naming ``option``, unless an output without a manifest may be written to ``path``.

    It may if there is nothing, an empty file, or a file of the same kind, recognised by ``begins`` from its first
    HEAD_BYTES bytes.
    """
    if not name_is_taken(path):
        return
    if file_is_there(path):
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if not head or begins(head):
            return
    raise InputError(f"{option} {path}: exists and is not {kind}; choose another name, or remove it yourself")


def walked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder below ``folder``, itself included, with the names of its entries that are no folders.

    Raises OSError, which names the folder, if a folder cannot be read: ``os.walk`` would take it as empty.
    """

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for inner, _, names in os.walk(folder, onerror=fail):
        yield inner, names


def sync_folder(path: Path) -> None:
    """Sync a file, or a folder and all files below it, to the disk. Raises OSError, which names the file that
    failed."""
    if not folder_is_there(path):
        sync_to_disk(path)
        return
    folders = list(walked(path))
    sync_all(Path(folder, name) for folder, names in folders for name in names)
    sync_all(Path(folder) for folder, _ in folders)


def sync_all(paths: Iterable[Path]) -> None:
    """Sync many files to the disk at the same time, because a file system commits them together.

    Raises OSError in the cases of :func:`sync_to_disk`.
    """
    for _ in grouped_map(sync_to_disk, paths, SYNCED_AT_ONCE):
        pass


def sync_to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's own entries, are on the disk.

    Raises OSError, naming ``path``, if that fails; a file system without fsync is no error.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        sync_handle(handle, path)
    finally:
        os.close(handle)


def sync_handle(handle: int, path: Path) -> None:
    """Sync an open file as ``sync_to_disk`` does; ``path`` is used in the error only."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise OSError(error.errno, error.strerror, str(path)) from error
