"""The code of a job is that of its beginning, whatever becomes of the checkout."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.benchmark.launch.slurm.stand_in_job import Job


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
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "first")
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "benchmark" / "loop.py").write_text("changed\n")
    (checkout / "gone.py").unlink()
    (checkout / "new file.py").write_text("untracked\n")
    (checkout / "large.bin").write_bytes(bytes(2 << 20))
    (checkout / "some.log").touch()
    assert job.run().returncode == 0
    code = snapshot / "code"
    assert (code / ".commit").read_text() == f"{commit}-dirty\n"
    assert (code / "benchmark" / "loop.py").read_text() == "changed\n"
    assert (code / "new file.py").exists()
    assert not any((code / name).exists() for name in ("gone.py", "large.bin", "some.log", ".git"))
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
    checkout = job.folder / "checkout"
    (checkout / "runs").mkdir()
    (checkout / "runs" / "data").touch()
    job.log_dir = checkout / "log"
    assert job.run().returncode == 0
    code = job.log_dir / "snapshot" / "code"
    assert (code / ".commit").read_text() == ""
    assert (code / "benchmark" / "launch" / "__main__.py").exists()
    assert not (code / "runs").exists() and not (code / "log").exists()
