"""The source is what it was: any file that comes, goes or changes is noticed, whatever its times say."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from stage.errors import InputError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("a/.zarray", "a/0.0", "b/0/1", "other/0"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    return tmp_path


def rewrite_and_set_back(path: Path) -> None:
    before = path.stat()
    path.write_bytes(b"54321")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "longer": lambda source: (source / "a/0.0").write_bytes(b"123456"),
    "touched": lambda source: os.utime(source / "a/0.0", (1, 1)),
    "rewritten": lambda source: rewrite_and_set_back(source / "b/0/1"),
    "gone": lambda source: (source / "b/0/1").unlink(),
    "come": lambda source: (source / "a/0.1").touch(),
    "replaced": lambda source: (source / "other/0").rename(source / "a/0.0"),
    "pipe": lambda source: make_pipe(source / "a/0.0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(change: str, source: Path) -> None:
    files = SourceFiles(source, ["a", "b", "never there"])
    files.require_unchanged()
    before = files.fingerprint()
    assert (before["files"], before["bytes"]) == (3, 15)
    CHANGES[change](source)
    with pytest.raises(InputError, match=r"changed while it was converted .* nothing was published"):
        files.require_unchanged()
    assert SourceFiles(source, ["a", "b"]).fingerprint() != before


def test_what_is_read_is_what_was_there(source: Path) -> None:
    files = SourceFiles(source, ["a", "b"])
    assert (files.has("b/0/1"), files.has("b/0/2"), files.has("other/0")) == (True, False, False)
    files.require_as_it_was("a/0.0", (source / "a/0.0").stat())
    rewrite_and_set_back(source / "a/0.0")
    with pytest.raises(InputError, match=r"a/0\.0: changed while"):
        files.require_as_it_was("a/0.0", (source / "a/0.0").stat())
    (source / "other" / "0").unlink()  # not one of them
    SourceFiles(source, ["a", "b"]).require_unchanged()
