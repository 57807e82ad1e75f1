"""The journal: what it says is on the disk, whatever stopped the conversion that wrote it."""

from pathlib import Path

import pytest

from checkpoint_convert.conversion.journal import Journal
from stage.errors import InputError

PURPOSE = {"stage": "x", "options": {"heads": 4}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, of which the journal at ``journal`` has two."""
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    for name in ("a/0", "a/1", "a/2"):
        (folder / name).write_bytes(b"12345")
    journal = Journal(tmp_path / "journal", folder, PURPOSE)
    assert journal.resumed == 0
    journal.note("a/0", "md5_of_0", 5)
    journal.note("a/1", "md5_of_1", 5)
    journal.close()
    return folder


def test_files_that_are_noted_and_there_are_not_written_again(folder: Path, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", folder, PURPOSE)
    assert journal.resumed == 2
    assert [journal.has(name) for name in ("a/0", "a/1", "a/2")] == [True, True, False]
    assert journal.digests == {"a/0": "md5_of_0", "a/1": "md5_of_1"}
    journal.close()


def test_shorter_and_lost_files_do_not_count(folder: Path, tmp_path: Path) -> None:
    (folder / "a" / "0").write_bytes(b"1234")
    journal = Journal(tmp_path / "journal", folder, PURPOSE)
    assert (journal.resumed, journal.has("a/0")) == (1, False)
    journal.close()
    (folder / "a" / "1").unlink()
    journal = Journal(tmp_path / "journal", folder, PURPOSE)
    assert journal.resumed == 0
    journal.close()


def test_line_that_was_cut_short_is_written_over(folder: Path, tmp_path: Path) -> None:
    with (tmp_path / "journal").open("a") as file:
        file.write("md5_of_2 5 a/")
    journal = Journal(tmp_path / "journal", folder, PURPOSE)
    assert journal.resumed == 2
    journal.note("a/2", "whole", 5)
    journal.close()
    assert (tmp_path / "journal").read_text().splitlines()[-1] == "whole 5 a/2"
    assert Journal(tmp_path / "journal", folder, PURPOSE).resumed == 3


def test_journal_of_something_else_begins_anew(folder: Path, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", folder, {**PURPOSE, "stage": "y"})
    assert (journal.resumed, journal.digests) == (0, {})
    journal.close()
    assert len((tmp_path / "journal").read_text().splitlines()) == 1


def test_one_conversion_at_a_time(folder: Path, tmp_path: Path) -> None:
    first = Journal(tmp_path / "journal", folder, PURPOSE)
    with pytest.raises(InputError, match="another conversion is writing it"):
        Journal(tmp_path / "journal", folder, PURPOSE)
    first.close()
