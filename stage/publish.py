"""Nothing half-written ever has a final name: write beside it, sync, rename."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"


def partial_path(path: Path) -> Path:
    """Where ``path`` is written until it is complete."""
    return path.with_name(path.name + PARTIAL)


@contextmanager
def published_file(path: Path) -> Iterator[Path]:
    """Yield the partial path; when the block ends well, sync it and give it its final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_path(path)
    try:
        yield partial
        finish(path)
    finally:
        partial.unlink(missing_ok=True)


def finish(path: Path) -> None:
    """Give the complete partial file of ``path`` its final name."""
    partial = partial_path(path)
    sync_to_disk(partial)
    os.replace(partial, path)
    sync_to_disk(path.parent)


@contextmanager
def published_folder(path: Path) -> Iterator[Path]:
    """The same for a folder: what an earlier, killed attempt left is removed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_path(path)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync_folder(partial)
    if path.exists():
        shutil.rmtree(path)
    os.replace(partial, path)
    sync_to_disk(path.parent)


def sync_folder(path: Path) -> None:
    """Bring a folder and all files below it to the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            sync_to_disk(Path(folder, name))
        sync_to_disk(Path(folder))


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole."""
    with published_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def sync_to_disk(path: Path) -> None:
    """Of a file its content, of a folder its entries; not what is below it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
