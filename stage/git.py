"""The repository's commit and files, as git knows them."""

import subprocess
from pathlib import Path

from stage.errors import InputError

REPOSITORY = Path(__file__).resolve().parents[1]
COMMIT_FILE = ".commit"
"""A run's copy of the code (launch/slurm/snapshot.py) has this file: what ``commit_of`` found where it was copied.
The copy may lie within another checkout, or within this one, which has moved on."""


def commit_of(repository: Path = REPOSITORY) -> str | None:
    """Full hash of the commit that is checked out, ending in ``-dirty`` where tracked files differ from it; None
    where there is no git or no checkout."""
    noted = repository / COMMIT_FILE
    if noted.is_file():
        return noted.read_text(encoding="utf-8").strip() or None
    found = _git(repository, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return found.decode().strip() if found is not None else None


def tracked_files(repository: Path = REPOSITORY) -> list[Path]:
    """Files under version control, relative to ``repository``. Raises InputError where it is not a checkout."""
    copied = (repository / COMMIT_FILE).is_file()
    found = None if copied else _git(repository, "ls-files", "-z")
    if found is None:
        raise InputError(
            f"{repository}: not a git checkout, so the files of the code are unknown; clone the repository"
        )
    return [Path(name.decode("utf-8", "surrogateescape")) for name in found.split(b"\0") if name]


def _git(repository: Path, *arguments: str) -> bytes | None:
    try:
        return subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
