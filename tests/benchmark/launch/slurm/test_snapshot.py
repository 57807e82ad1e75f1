"""The code of a job is that of its beginning, whatever becomes of the checkout."""

import errno
import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmark.launch.slurm.snapshot import PACKAGES, SUFFIXES, run_from_snapshot
from benchmark.run_record.file_names import code_folder
from foundation.git import commit_of
from tests.benchmark.launch.slurm.stand_in_job import Job
from tests.support import REPOSITORY

NOTICE = "benchmark/judging/report/vendor/LICENSE"
"""The only file of a package without a suffix; it is no code."""


def git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "somebody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    words = ["git", "-C", str(folder), *arguments]
    return subprocess.run(words, env={**os.environ, **who}, capture_output=True, text=True, check=True).stdout.strip()


def test_code_is_that_of_the_beginning(job: Job) -> None:
    """Of a checkout with changes, and whatever becomes of it."""
    checkout, snapshot = job.folder / "checkout", job.log_dir / "snapshot"
    (checkout / "benchmark" / "loop.py").write_text("first\n")
    (checkout / "gone.py").touch()
    (checkout / ".gitignore").write_text("*.log\n")
    (checkout / "same.py").symlink_to("gone.py.kept")
    (checkout / "gone.py.kept").write_text("kept\n")
    (checkout / "away.py").symlink_to(job.folder / "private")
    (job.folder / "private").write_text("hunter2\n")
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "first")
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "benchmark" / "loop.py").write_text("changed\n")
    (checkout / "gone.py").unlink()
    (checkout / "new file.py").write_text("untracked\n")
    for name in (".env", "token.txt", "new.py"):
        (checkout / name).write_text("hunter2\n")
    (checkout / "large.bin").write_bytes(bytes(2 << 20))
    (checkout / "some.log").touch()
    begun = job.run(SNAPSHOT_FILES="new.py some.log")
    assert begun.returncode == 0
    assert (
        "does not track are not copied: .env, large.bin, new file.py, token.txt; SNAPSHOT_FILES names" in begun.stdout
    )
    code = snapshot / "code"
    assert (code / ".commit").read_text() == f"{commit}-dirty\n"
    assert (code / "benchmark" / "loop.py").read_text() == "changed\n"
    assert all((code / name).is_file() for name in ("new.py", "some.log", ".gitignore"))
    not_copied = ("gone.py", "large.bin", ".git", "new file.py", ".env", "token.txt", "away.py")
    assert not any((code / name).exists() for name in not_copied)
    assert not (code / "same.py").is_symlink() and (code / "same.py").read_text() == "kept\n"
    assert all(path.lstat().st_mode & 0o027 == 0 for path in [job.log_dir, snapshot, code, *code.rglob("*")])
    assert "+changed" in (snapshot / "git.diff").read_text()
    assert f"commit {commit}-dirty" in (snapshot / "git.txt").read_text()
    assert (snapshot / "job_5_0.txt").exists()
    assert job.calls("python3", "environment_snapshot", f"{snapshot}/job_5_0.json")

    shutil.rmtree(checkout / "benchmark" / "launch")
    (checkout / "benchmark" / "loop.py").write_text("later\n")
    job.begin_again()
    again = job.run(SLURM_RESTART_COUNT="1")
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"commit {commit}-dirty" in again.stdout
    assert (code / "benchmark" / "loop.py").read_text() == "changed\n"

    git(checkout, "checkout", "--quiet", "--", "benchmark/launch")
    git(checkout, "commit", "--quiet", "--all", "--message", "second")
    job.begin_again()
    assert f"the checkout is at {git(checkout, 'rev-parse', 'HEAD')} by now" in job.run().stdout
    job.begin_again()
    assert job.run(NEW_SNAPSHOT="1").returncode == 0
    assert (code / "benchmark" / "loop.py").read_text() == "later\n"
    assert (snapshot / "code.1" / "benchmark" / "loop.py").read_text() == "changed\n"
    job.begin_again()
    job.run(NEW_SNAPSHOT="1", SLURM_RESTART_COUNT="1")  # the same job, requeued
    assert not (snapshot / "code.2").exists()


def test_code_without_git(job: Job) -> None:
    """Within a checkout of other code, which does not track it."""
    checkout = job.folder / "checkout"
    (job.folder / ".gitignore").write_text("*\n")
    git(job.folder, "init", "--quiet")
    git(job.folder, "add", "--force", ".gitignore")
    git(job.folder, "commit", "--quiet", "--message", "other code")
    (checkout / "runs").mkdir()
    for name in ("runs/data", ".env", "token.txt", "benchmark/.env", "benchmark/token.txt", "benchmark/new.py"):
        (checkout / name).touch()
    job.log_dir = checkout / "log"
    assert job.run().returncode == 0
    code = job.log_dir / "snapshot" / "code"
    assert (code / ".commit").read_text() == "" and commit_of(checkout) is None
    assert (code / "benchmark" / "launch" / "__main__.py").exists()
    assert (code / "benchmark" / "new.py").exists() and (code / "run_gpt3.sh").stat().st_mode & 0o777 == 0o750
    not_copied = ("runs", "log", ".env", "token.txt", "benchmark/.env", "benchmark/token.txt")
    assert not any((code / name).exists() for name in not_copied)


def test_copy_is_whole_or_not_there_while_the_disk_gives_errors(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, copies = job.folder / "checkout", functools.partial(run_from_snapshot, new=False)

    def fail(path: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        with pytest.raises(OSError, match="Stale file handle"):
            copies(checkout, job.log_dir)
    assert not code_folder(job.log_dir).exists()
    copies(checkout, job.log_dir)
    assert (code_folder(job.log_dir) / "benchmark" / "launch" / "__main__.py").exists()


def test_packages_hold_no_file_that_a_checkout_without_git_would_miss() -> None:
    tracked = git(REPOSITORY, "ls-files", *PACKAGES).splitlines()
    assert len(tracked) > 300
    assert [name for name in tracked if Path(name).suffix not in SUFFIXES] == [NOTICE]


def test_listed_file_lies_in_the_repository(job: Job) -> None:
    (job.folder / "private").touch()
    for name in ("../private", str(job.folder / "private"), "missing.py"):
        refused = job.run(SNAPSHOT_FILES=name)
        assert refused.returncode == 2
        assert f"error: SNAPSHOT_FILES: {name}: expected a file in {job.folder / 'checkout'}" in refused.stdout
