"""The commit and files of the repository, from git."""

import subprocess
from pathlib import Path

from foundation.disk_answers import file_is_there
from foundation.errors import InputError

REPOSITORY = Path(__file__).resolve().parents[1]
COMMIT_FILE = ".commit"
"""File in a run's copy of the code (launch/slurm/snapshot.py) with the result of ``commit_of`` at the time of the copy.
Git could give another commit, because the copy may lie within another checkout, or within this one, which has moved
on."""


def commit_of(repository: Path = REPOSITORY) -> str | None:
    """Return the full hash of the checked-out commit, ending in ``-dirty`` if tracked files differ from it.

    Returns None if there is no git or no checkout, and within a checkout of other code, which tracks no file here.
    """
    noted = repository / COMMIT_FILE
    if file_is_there(noted):
        return noted.read_text(encoding="utf-8").strip() or None
    if not _git(repository, "ls-files"):
        return None
    description = _git(repository, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return description.decode().strip() if description is not None else None


def tracked_files(repository: Path = REPOSITORY) -> list[Path]:
    """Return the files under version control, relative to ``repository``. Raises InputError if it is not a checkout."""
    is_copy = file_is_there(repository / COMMIT_FILE)
    listing = None if is_copy else _git(repository, "ls-files", "-z")
    if listing is None:
        raise InputError(
            f"{repository}: not a git checkout, so the files of the code are unknown; clone the repository"
        )
    return [Path(name.decode("utf-8", "surrogateescape")) for name in listing.split(b"\0") if name]


def _git(repository: Path, *arguments: str) -> bytes | None:
    try:
        return subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
