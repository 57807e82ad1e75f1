"""Files and folders appear whole or not at all."""

import errno
import os
import posix
from pathlib import Path

import pytest

from foundation.errors import InputError
from foundation.outputs.manifest import record_of
from foundation.outputs.publish import (
    published_file,
    published_folder,
    require_same_kind,
    sibling,
    sync_folder,
    sync_to_disk,
    walked,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), published_file(path) as partial:
        partial.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_appears_whole_or_not_at_all_and_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    with pytest.raises(RuntimeError), published_folder(path) as partial:
        (partial / "a").touch()
        raise RuntimeError
    assert names(path.parent) == []
    for name in ("a", "b"):
        with published_folder(path) as partial:
            (partial / name).touch()
            assert name == "b" or not path.exists()
    assert names(path) == ["b"]
    assert names(path.parent) == ["folder"]


def test_the_older_folder_stays_where_the_new_one_cannot_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    with published_folder(path) as partial:
        (partial / "a").touch()
    rename, times = Path.rename, []

    def fail_at_the_second(self: Path, target: Path) -> Path:
        times.append(self)
        if len(times) == 2:
            raise OSError(errno.EIO, "Input/output error", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_at_the_second)
    with pytest.raises(OSError, match="Input/output"), published_folder(path) as partial:
        (partial / "b").touch()
    assert names(path) == ["a"]
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize(("number", "told"), [(errno.EINVAL, False), (errno.ENOSYS, False), (errno.EIO, True)])
def test_failed_syncs_are_told_and_missing_ones_are_not(
    number: int, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if told:
        with pytest.raises(OSError, match=f"{os.strerror(number)}: .*{tmp_path.name}"):
            sync_to_disk(tmp_path)
    else:
        sync_to_disk(tmp_path)
        write_text(tmp_path / "a", "a")


def test_files_and_folders_are_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system's own call, which tests go without otherwise (tests/unsynced.py)."""
    synced = []

    def fsync(handle: int) -> None:
        posix.fsync(handle)
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())

    monkeypatch.setattr(os, "fsync", fsync)
    with published_folder(tmp_path / "folder") as partial:
        (partial / "a").write_text("a")
    (file, folder, parent) = synced
    assert (file.name, folder, parent) == ("a", file.parent, tmp_path)
    write_text(tmp_path / "b", "b")
    assert [path.parent for path in synced[3:]] == [tmp_path, tmp_path.parent]


@pytest.mark.parametrize("path", ["", ".", "/", "..", "a/.."])
def test_what_has_no_name_has_nothing_beside_it(path: str) -> None:
    with pytest.raises(InputError, match="has no name of its own"):
        sibling(Path(path), ".bin")


def test_one_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    real = os.scandir

    def failing(path: str) -> object:
        if str(path).endswith("/a"):
            raise OSError(5, "Input/output error", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", failing)
    for go_through in (lambda path: list(walked(path)), lambda path: record_of(path, "x", None), sync_folder):
        with pytest.raises(OSError, match="/a'"):
            go_through(tmp_path)


def test_an_output_replaces_its_own_kind_and_nothing_else(tmp_path: Path) -> None:
    output = tmp_path / "x.npy"

    def check() -> None:
        require_same_kind(output, "--output", "a .npy file", lambda head: head.startswith(b"NUMPY"))

    check()
    for own in (b"", b"NUMPY 1"):
        output.write_bytes(own)
        check()
    for make in (lambda: output.write_text("mine"), output.mkdir, lambda: output.symlink_to("nowhere")):
        output.unlink(missing_ok=True)
        make()
        with pytest.raises(InputError, match=r"--output .*x.npy: exists and is not a .npy file"):
            check()
        if output.is_dir():
            output.rmdir()
