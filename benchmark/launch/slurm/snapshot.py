"""Copy the code into a run's folder when the run begins, and record where it ran.

LOG_DIR/snapshot/code/                 the code that runs; code.1, code.2, ...: earlier code, before a NEW_SNAPSHOT
LOG_DIR/snapshot/git.txt, git.diff     commit and state of the checkout, and how it differed from the commit
LOG_DIR/snapshot/job_JOB_RESTARTS.txt  the job and its nodes as Slurm has them, the network's topology
LOG_DIR/snapshot/job_JOB_RESTARTS.json versions, packages, variables (no secrets), devices: environment_snapshot.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmark.launch.keep_running import Refused, say

MOST_BYTES = 1 << 20
"""Most bytes of a copied file: code is smaller, data is larger."""
DIFF_BYTES = 10_000_000
NO_CODE = (".venv", ".git", "runs", "build", "__pycache__")
"""Folders that are left out of a copy made without git."""


def run_from_snapshot(repository: Path, run_dir: Path, *, new: bool) -> Path:
    """Return the run's own copy of the code, made now if there is none or a ``new`` one is wanted. Raises Refused."""
    snapshot = run_dir / "snapshot"
    code, now = snapshot / "code", _commit(repository)
    if new and code.is_dir():
        numbers = (number for number in range(1, 10_000) if not (snapshot / f"code.{number}").exists())
        code.rename(snapshot / f"code.{next(numbers)}")
    if not code.is_dir():
        try:
            snapshot.mkdir(parents=True, exist_ok=True)
            _copy_code(repository, run_dir, code, now)
        except (OSError, shutil.Error) as error:
            mend = "see that the disk has room"
            raise Refused(f"{snapshot}: the code could not be copied there ({error}); {mend}") from error
        branch, state = _git(repository, "rev-parse", "--abbrev-ref", "HEAD"), _git(repository, "status", "--short")
        (snapshot / "git.txt").write_bytes(b"commit %s\nbranch %s%s" % (now.encode(), branch, state))
        (snapshot / "git.diff").write_bytes(_git(repository, "diff", "HEAD", "--binary")[:DIFF_BYTES])
    noted = code / ".commit"
    commit = noted.read_text(encoding="utf-8").strip() if noted.is_file() else ""
    say(f"code: {code}, commit {commit or 'unknown'}")
    if now and now != commit:
        say(f"code: the checkout is at {now} by now, which is not what runs; NEW_SNAPSHOT=1 takes it")
    return code


def _copy_code(repository: Path, run_dir: Path, code: Path, commit: str) -> None:
    """Copy the checkout as it is now, with changed files; the copy is whole or not there at all."""
    partial = code.with_name("code.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in _files_of_git(repository) if commit else _files_without_git(repository, run_dir):
        source, copy = repository / name, partial / name
        if source.is_file() and source.stat().st_size < MOST_BYTES:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    (partial / ".commit").write_text(f"{commit}\n" if commit else "", encoding="utf-8")
    partial.rename(code)


def _files_of_git(repository: Path) -> list[str]:
    """Return the files that git tracks or does not ignore."""
    listed = _git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _files_without_git(repository: Path, run_dir: Path) -> Iterator[str]:
    """Yield the files of a checkout, except those in folders that hold no code."""
    for folder, folders, files in os.walk(repository):
        folders[:] = [name for name in folders if name not in NO_CODE and Path(folder, name) != run_dir]
        yield from (os.path.relpath(os.path.join(folder, name), repository) for name in files)


def _commit(repository: Path) -> str:
    """Return the commit as in foundation/git.py; empty without git."""
    return _git(repository, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").decode().strip()


def _git(repository: Path, *words: str) -> bytes:
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""
