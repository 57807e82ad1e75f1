"""Copy the code into a run's folder when the run begins, and record where it ran.

LOG_DIR/snapshot/code/                 the code that runs; code.1, code.2, ...: earlier code, before a NEW_SNAPSHOT
LOG_DIR/snapshot/git.txt, git.diff     commit and state of the checkout, and how it differed from the commit
LOG_DIR/snapshot/job_JOB_RESTARTS.txt  the job and its nodes as Slurm has them, the network's topology
LOG_DIR/snapshot/job_JOB_RESTARTS.json versions, packages, variables by an allow-list, devices: environment_snapshot.py

The copy holds the files that git tracks and those of SNAPSHOT_FILES, because other files of a checkout may be secret.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmark.launch.keep_running import Refused, say
from benchmark.run_record.file_names import code_folder, snapshot_folder
from foundation.disk_answers import file_is_there, folder_is_there, is_there

MOST_BYTES = 1 << 20
"""Most bytes of a copied file: code is smaller, data is larger."""
DIFF_BYTES = 10_000_000
GIT_FACTS = (("rev-parse", "--abbrev-ref", "HEAD"), ("status", "--short"), ("diff", "HEAD", "--binary"))
MOST_NAMED = 5
"""Most untracked files that a line names."""
PACKAGES = ("benchmark", "checkpoint_convert", "checksums", "data_prep", "foundation", "model")
TOP_FILES = ("run_gpt3.sh", "environment.sh", "pyproject.toml", "requirements.lock", "requirements-dev.lock")
SUFFIXES = frozenset(".py .typed .json .toml .csv .yaml .j2 .js .css .md .md5 .log".split())
"""With these suffixes of the packages' files, the code where git is missing."""


def run_from_snapshot(repository: Path, run_dir: Path, *, new: bool, more_files: Sequence[str] = ()) -> Path:
    """Return the folder of the code to run: the run's copy, which is made first if there is none or for a ``new`` one,
    or the repository if others may write the copy. ``more_files``: untracked files of the code, relative to the
    repository. Raises Refused, and OSError if the disk gives an error: the same call goes on.
    """
    snapshot, code, commit_now = snapshot_folder(run_dir), code_folder(run_dir), _commit(repository)
    if new and folder_is_there(code):
        numbers = (number for number in range(1, 10_000) if not code.with_name(f"{code.name}.{number}").exists())
        code.rename(code.with_name(f"{code.name}.{next(numbers)}"))
    if not folder_is_there(code):
        with _umask(0o027):
            snapshot.mkdir(parents=True, exist_ok=True)
            branch, state, changes = (_git(repository, *words) if commit_now else b"" for words in GIT_FACTS)
            (snapshot / "git.txt").write_bytes(b"commit %s\nbranch %s%s" % (commit_now.encode(), branch, state))
            (snapshot / "git.diff").write_bytes(changes[:DIFF_BYTES])
            _copy_code(repository, code, commit_now, more_files)
    commit_file = code / ".commit"
    commit = commit_file.read_text(encoding="utf-8").strip() if is_there(commit_file) else ""
    if writable := _writable_by_others(code):
        others = f"others may write {writable}"
        say(f"code: {repository}, commit {commit_now or 'unknown'}; the run's copy does not run, for {others}")
        if commit != commit_now:
            say(f"code: the run began with commit {commit or 'unknown'}, which is not what runs")
        return repository
    say(f"code: {code}, commit {commit or 'unknown'}")
    if commit_now and commit_now != commit:
        say(f"code: the checkout is at {commit_now} by now, which is not what runs; NEW_SNAPSHOT=1 takes it")
    return code


def _writable_by_others(code: Path) -> str:
    """Return a path through which others may change the code; empty without one. run_gpt3.sh decides. Raises OSError if
    the disk does not say."""
    words = ["bash", str(Path(__file__).parents[3] / "run_gpt3.sh"), "--writable-by-others", str(code)]
    check = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if check.returncode:
        raise OSError(errno.EIO, "its owners and modes cannot be read", str(code))
    return os.fsdecode(check.stdout).partition("\n")[0]


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    earlier = os.umask(mask)
    os.umask(mask | earlier)
    try:
        yield
    finally:
        os.umask(earlier)


def _copy_code(repository: Path, code: Path, commit: str, more_files: Sequence[str]) -> None:
    """Copy the checkout as it is now; the copy is whole or not there at all."""
    partial, root = code.with_name(f"{code.name}.partial"), repository.resolve()
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name in more_files:
        if root not in (repository / name).resolve().parents or not file_is_there(repository / name):
            raise Refused(f"SNAPSHOT_FILES: {name}: expected a file in {repository}")
    for name in [*(_git_names(repository, "--cached") if commit else _files_without_git(repository)), *more_files]:
        source = (repository / name).resolve()
        status = source.stat() if root in source.parents and is_there(source) else None
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_size < MOST_BYTES:
            _copy_file(source, partial / name, stat.S_IMODE(status.st_mode) & 0o750)
    (partial / ".commit").write_text(f"{commit}\n" if commit else "", encoding="utf-8")
    partial.rename(code)
    untracked = set(_git_names(repository, "--others", "--exclude-standard")) - set(more_files)
    if commit and untracked:
        names = ", ".join(sorted(untracked)[:MOST_NAMED]) + (" ..." if len(untracked) > MOST_NAMED else "")
        mend = "SNAPSHOT_FILES names those that the run needs"
        say(f"code: files that git does not track are not copied: {names}; {mend}")


def _copy_file(source: Path, copy: Path, mode: int) -> None:
    """Copy a file onto the disk: its node may be lost now, and what it had not written there."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy2(source, copy)
    except PermissionError as error:
        if error.filename == str(source):
            raise Refused(f"{source}: cannot be read, and the run needs a copy of the code") from None
        raise
    copy.chmod(mode)
    with copy.open("rb") as file:
        os.fsync(file.fileno())


def _git_names(repository: Path, *options: str) -> list[str]:
    return [os.fsdecode(name) for name in _git(repository, "ls-files", "-z", *options).split(b"\0") if name]


def _files_without_git(repository: Path) -> Iterator[str]:
    """Yield the code's files in a checkout without git."""
    yield from TOP_FILES

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for package in PACKAGES:
        for folder, folders, files in os.walk(repository / package, onerror=fail):
            folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
            names = [name for name in files if not name.startswith(".") and Path(name).suffix in SUFFIXES]
            yield from (os.path.relpath(os.path.join(folder, name), repository) for name in names)


def _commit(repository: Path) -> str:
    """Return the commit as in foundation/git.py; empty without git, and in a checkout of other code, which tracks no
    file of the repository."""
    if not _git_names(repository, "--cached"):
        return ""
    return _git(repository, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").decode().strip()


def _git(repository: Path, *words: str) -> bytes:
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""
