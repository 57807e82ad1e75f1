"""What git knows of a folder."""

import os
import subprocess
from pathlib import Path

import pytest

from foundation.errors import InputError
from foundation.git import commit_of, tracked_files


def git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "somebody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    words = ["git", "-C", str(folder), *arguments]
    return subprocess.run(words, env={**os.environ, **who}, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "naïve name").write_text("1")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    (folder / "untracked").touch()
    return folder


def test_commit_and_whether_tracked_files_differ(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD").strip()
    assert len(commit) == 40
    git(checkout, "tag", "--annotate", "--message", "a tag", "v1")
    assert commit_of(checkout) == commit
    (checkout / "sub" / "naïve name").write_text("2")
    assert commit_of(checkout) == f"{commit}-dirty"
    assert tracked_files(checkout) == [Path("sub/naïve name")]


def test_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) is None
    with pytest.raises(InputError, match="not a git checkout, so the files of the code are unknown"):
        tracked_files(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # no git at all
    assert commit_of(tmp_path) is None


def test_a_copy_that_a_run_made_keeps_its_commit(checkout: Path) -> None:
    copy = checkout / "runs" / "code"
    copy.mkdir(parents=True)
    (copy / ".commit").write_text("0123456789abcdef-dirty\n")
    assert commit_of(copy) == "0123456789abcdef-dirty"
    with pytest.raises(InputError, match="not a git checkout"):
        tracked_files(copy)
    (copy / ".commit").write_text("\n")  # of code without git
    assert commit_of(copy) is None
