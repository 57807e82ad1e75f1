"""Nothing half-written ever has a final name: write beside it, sync, rename.

What is being written has a name that no other process uses, ``NAME.a1b2c3d4-PID-N.partial``: two that make the same
file, on machines that do not see each other's locks, each publish a whole one. What a killed process left is removed by
the next one that writes the same name and can see that it has ended.
"""

import errno
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from stage.claims.process_identity import is_running, next_own_name, this_process
from stage.errors import InputError

PARTIAL = ".partial"
OWN_NAME = re.compile(r"(?:\.manifest\.json|\.md5)?\.([0-9a-f]{8})-([0-9]+)-[0-9]+(\.old)?\.partial")
"""After the output's name; its list and manifest may have been left half-written, too."""
SYNCED_AT_ONCE = 32
LEFT_S = 7 * 86400.0
"""Another machine's partial files count as left behind when nobody has changed them for so long."""
NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EROFS)
"""File systems that know no fsync, of folders or at all: then there is nothing to wait for."""


def beside(path: Path, ending: str) -> Path:
    """What lies beside ``path`` under its name and ``ending``. Raises InputError where it has no name of its own: the
    current folder, the root."""
    if path.name in ("", ".."):
        raise InputError(f"{str(path)!r}: has no name of its own that others could begin with; name it from outside")
    return path.with_name(path.name + ending)


def partial_path(path: Path) -> Path:
    """Where ``path`` is written by whoever holds a claim on it, until it is complete."""
    return beside(path, PARTIAL)


def own_partial_path(path: Path) -> Path:
    """Where this process writes ``path``, whoever else does so at the same time."""
    return beside(path, f".{next_own_name()}{PARTIAL}")


@contextmanager
def published_file(path: Path) -> Iterator[Path]:
    """Yield the partial path; when the block ends well, sync it and give it its final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left_partials(path)
    with _published(path) as partial:
        yield partial


@contextmanager
def _published(path: Path) -> Iterator[Path]:
    partial = own_partial_path(path)
    try:
        yield partial
        finish(path, partial)
    finally:
        partial.unlink(missing_ok=True)


def finish(path: Path, partial: Path | None = None) -> None:
    """Give the complete partial file of ``path`` (None: ``partial_path``) its final name."""
    partial = partial or partial_path(path)
    sync_to_disk(partial)
    os.replace(partial, path)
    sync_to_disk(path.parent)


@contextmanager
def published_folder(path: Path) -> Iterator[Path]:
    """The same for a folder. An older one of that name is moved aside and removed once the new one is in its place;
    whether it may be, the caller has asked (``stage.limits.replacing``)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left_partials(path)
    partial = own_partial_path(path)
    partial.mkdir()
    try:
        yield partial
        sync_folder(partial)
        replace_folder(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def replace_folder(new: Path, path: Path) -> None:
    """Rename the folder ``new`` to ``path``; what has that name is moved aside first, and removed when all is well."""
    aside = path.with_name(f"{path.name}.{next_own_name()}.old{PARTIAL}")
    with suppress(FileNotFoundError):
        path.rename(aside)
    try:
        new.rename(path)
    except BaseException:
        with suppress(OSError):
            aside.rename(path)
        raise
    sync_to_disk(path.parent)
    _remove(aside)


def remove_left_partials(path: Path) -> None:
    """Remove partial files and folders of ``path`` whose process has ended; those of other machines after a week."""
    mine = this_process().short().split("-")[0]
    found: list[str] = []
    with suppress(FileNotFoundError), os.scandir(path.parent) as entries:
        found = [entry.name for entry in entries if entry.name.startswith(path.name + ".")]
    for name in found:
        match = OWN_NAME.fullmatch(name.removeprefix(path.name))
        if match is None:
            continue
        left = path.with_name(name)
        ended = not is_running(int(match[2])) if match[1] == mine else _is_old(left)
        if ended and (path.exists() or not match[3]):  # what was moved aside may be the only one there is
            _remove(left)


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > LEFT_S
    except OSError:
        return False


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def sync_folder(path: Path) -> None:
    """Bring a folder and all files below it to the disk. Raises OSError, naming the file, where one did not arrive."""
    found = list(walked(path))
    sync_all(Path(folder, name) for folder, names in found for name in names)
    sync_all(Path(folder) for folder, _ in found)


def walked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Each folder, and the names of what lies in it and is no folder. What is gone meanwhile is left out.

    Raises OSError, naming the folder, for one that cannot be read: ``os.walk`` would take it as empty.
    """
    for inner, _, names in os.walk(folder, onerror=_raise_unless_gone):
        yield inner, names


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def sync_all(paths: Iterable[Path]) -> None:
    """``sync_to_disk`` of each, many at a time: a file system commits them together."""
    with ThreadPoolExecutor(SYNCED_AT_ONCE) as pool:
        for _ in pool.map(sync_to_disk, paths):
            pass


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _published(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="surrogateescape")


def sync_to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's own entries, are on the disk. Raises OSError, naming ``path``, where
    that failed; a file system that knows no such thing is left alone."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        sync_handle(handle, path)
    finally:
        os.close(handle)


def sync_handle(handle: int, path: Path) -> None:
    """``sync_to_disk`` of an open file; ``path`` is for the error alone."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise OSError(error.errno, error.strerror, str(path)) from error
