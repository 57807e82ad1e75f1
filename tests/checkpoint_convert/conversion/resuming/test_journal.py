"""The journal: what it says is on the disk, whatever stopped the conversion that wrote it."""

import errno
import os
from pathlib import Path

import pytest

from checkpoint_convert.conversion.resuming.journal import Journal, WrittenFile, read_journals, still_written
from checkpoint_convert.conversion.resuming.source_files import state_of
from stage.digest import md5_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, of which the journal ``x.journal`` has two."""
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    journal = Journal(tmp_path / "x.journal", {})
    for name in ("a/0", "a/1", "a/2"):
        (folder / name).write_bytes(b"12345")
        if name != "a/2":
            note(journal, folder, name)
    journal.close()
    return folder


def note(journal: Journal, folder: Path, name: str) -> None:
    journal.note(name, WrittenFile(md5_file(folder / name), state_of((folder / name).stat())))


def found(folder: Path) -> list[str]:
    return sorted(still_written(folder, read_journals(folder.parent)))


def test_files_that_are_noted_and_there_are_not_written_again(folder: Path, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.journal", still_written(folder, read_journals(tmp_path)))
    assert journal.resumed == 2
    assert [journal.has(name) for name in ("a/0", "a/1", "a/2")] == [True, True, False]
    note(journal, folder, "a/2")
    journal.close()
    assert found(folder) == ["a/0", "a/1", "a/2"]


def test_sizes_alone_are_not_trusted(folder: Path) -> None:
    """A crash of the machine can leave a file as long as it was, but of zeros."""
    os.utime(folder / "a" / "0")  # touched, of the same contents: read, and found to be whole
    assert found(folder) == ["a/0", "a/1"]
    state = (folder / "a" / "0").stat()
    (folder / "a" / "0").write_bytes(bytes(5))
    os.utime(folder / "a" / "0", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert found(folder) == ["a/1"]
    (folder / "a" / "1").write_bytes(b"1234")
    assert found(folder) == []
    (folder / "a" / "1").unlink()
    assert found(folder) == []


def test_journals_of_several_processes_count_together(folder: Path, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "y.journal", {})
    note(journal, folder, "a/2")
    journal.close()
    assert found(folder) == ["a/0", "a/1", "a/2"]


@pytest.mark.parametrize(
    "rest",
    [
        "0123456789abcdef0123456789abcdef 5 1 1 a/",
        "0123456789abcdef0123456789abcdef 5 1 1 a/2",  # whole but for the end of the line
        "0123456789abcdef0123456789abcdef 5 1 1 ../../outside/2\n",
        "0123456789abcdef0123456789abcdef 5 1 1 a/0123456789abcdef0123456789abcdef 5 1 1 a/2\n",
        "\x00" * 4096 + "\n",
    ],
)
def test_what_is_no_line_does_not_count_and_is_written_over(rest: str, folder: Path, tmp_path: Path) -> None:
    with (tmp_path / "x.journal").open("a") as file:
        file.write(rest)
    assert found(folder) == ["a/0", "a/1"]
    journal = Journal(tmp_path / "x.journal", {})
    note(journal, folder, "a/2")
    journal.close()
    assert found(folder) == ["a/0", "a/1", "a/2"]


def test_half_a_line_of_a_full_disk_spoils_no_other(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, journal = os.write, Journal(tmp_path / "x.journal", {})

    def half(handle: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match=r"No space left on device: .*x\.journal"):
        note(journal, folder, "a/2")
    monkeypatch.setattr(os, "write", write)
    note(journal, folder, "a/2")
    journal.close()
    assert found(folder) == ["a/0", "a/1", "a/2"]
