"""The source is what it was: a file that comes, goes or changes is noticed; a chmod or a hard link is no change."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_convert.formats.source_files import LocalFiles
from foundation.errors import InputError
from foundation.outputs.manifest import Source

LARGE = 3 << 20
"""Bytes; the identity covers all of a small file, and both ends of a large one."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("a/.zarray", "a/0.0", "b/0/1", "other/0", "single"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "a/0.1").write_bytes(bytes(LARGE))
    return tmp_path


def rewrite(path: Path, content: bytes) -> None:
    """Replace the content, and set the time back."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "longer": lambda source: (source / "a/0.0").write_bytes(b"123456"),
    "rewritten": lambda source: rewrite(source / "b/0/1", b"54321"),
    "large one rewritten": lambda source: rewrite(source / "a/0.1", bytes(LARGE - 1) + b"x"),
    "gone": lambda source: (source / "b/0/1").unlink(),
    "come": lambda source: (source / "a/0.2").touch(),
}
NO_CHANGES: dict[str, Callable[[Path], object]] = {
    "touched": lambda source: os.utime(source / "a/0.1", (1, 1)),
    "copied": lambda source: shutil.copytree(source, source.with_name("copied")),
    "chmod": lambda source: (source / "a/0.0").chmod(0o444),
    "hard link": lambda source: (source / "elsewhere").hardlink_to(source / "a/0.1"),
    "not one of them": lambda source: (source / "other/0").unlink(),
    "moved": lambda source: source.rename(source.with_name("moved")),
}


NAMES = ["a/.zarray", "a/0.0", "a/0.1", "a/0.2", "b/0/1", "single"]


def asked(source: Path) -> LocalFiles:
    files = LocalFiles(source)
    files.ask(NAMES)
    return files


@pytest.mark.parametrize("change", [*CHANGES, *NO_CHANGES])
def test_the_identity_is_that_of_the_content(change: str, source: Path) -> None:
    files = asked(source)
    before = files.source()
    assert (before.files, before.bytes) == (5, 20 + LARGE)
    {**CHANGES, **NO_CHANGES}[change](source)
    here = source if source.exists() else source.with_name("moved")
    assert (asked(here).source().identity != before.identity) == (change in CHANGES)
    if here == source:
        assert is_same_now(files, before) == (change in NO_CHANGES and change != "touched")


def is_same_now(files: LocalFiles, before: Source) -> bool:
    """A file with another time may have been something else when it was read; the same process refuses it."""
    try:
        return files.source_now() == before
    except InputError as error:
        assert "changed while it was read" in str(error)
        return False


def test_what_is_read_is_what_was_there(source: Path) -> None:
    files = asked(source)
    assert [files.has(name) for name in ("b/0/1", "a/0.2", "other/0")] == [True, False, False]
    with files.open("a/0.0") as file:
        assert file.read() == b"12345"
    (source / "a/0.0").write_bytes(b"123456")
    with (
        pytest.raises(InputError, match=r"a/0\.0: changed while it was read .* nothing was published"),
        files.open("a/0.0"),
    ):
        pass
    (source / "a/0.0").unlink()
    with pytest.raises(FileNotFoundError), files.open("a/0.0"):
        pass
