"""Keep what an official tool said of the same bytes, so that review, results and report ask it once.

The key is a digest of the tool, its arguments, every file that it reads, and the versions of its libraries. The outcome
is judged anew each time, from the stored output. The store lies in the user's home; what others may write is not read.
"""

import contextlib
import gzip
import hashlib
import importlib.metadata
import json
import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

VERSION = 1
"""To be raised when the same files get another output, as by other limits of the tools."""
LIBRARIES = ("mlperf-logging", "numpy", "pandas", "scipy", "PyYAML")
MOST_RUNS = 2_000
"""Number of stored runs beyond which the oldest half goes."""
MOST_OUTPUT = 1 << 20
"""Largest number of characters of an output that is stored; that of a published package has 60,000."""


@dataclass(frozen=True)
class StoredRun:
    """The end of a tool's process, its output, and the table that it wrote. Paths of the copies are replaced."""

    status: int
    output: str
    table: str
    seconds: float


class StoredRuns:
    """Runs of earlier reviews, in a folder; without one, nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder if folder is not None and _made_private(folder) else None
        self.reused = 0
        """Number of runs that were found."""

    def get(self, digest: str) -> StoredRun | None:
        """Return a run, if it is stored; a damaged file is none."""
        if self.folder is None:
            return None
        try:
            run = StoredRun(**json.loads(gzip.decompress((self.folder / digest).read_bytes())))
        except (OSError, ValueError, TypeError, EOFError):
            return None
        self.reused += 1
        return run

    def put(self, digest: str, run: StoredRun) -> None:
        """Store a run; a full disk is no error."""
        if self.folder is None or len(run.output) + len(run.table) > MOST_OUTPUT:
            return
        with contextlib.suppress(OSError):
            partial = self.folder / f"{digest}.{os.getpid()}"
            partial.write_bytes(gzip.compress(json.dumps(asdict(run)).encode()))
            partial.replace(self.folder / digest)

    def sweep(self) -> None:
        """Remove the oldest half of too many runs."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            paths = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime)
            for path in paths[: len(paths) // 2 if len(paths) > MOST_RUNS else 0]:
                path.unlink(missing_ok=True)


def usual_folder() -> Path | None:
    """Return the folder of the store in the user's home; None without a home."""
    with contextlib.suppress(RuntimeError):
        return Path.home() / ".cache" / "mlperf-review"
    return None


def _made_private(folder: Path) -> bool:
    """Return whether the folder is there, belongs to the user, and nobody else may write it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


@cache
def _versions() -> str:
    versions = []
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    return json.dumps([VERSION, sys.version, *versions])


def digest_of(tool: str, arguments: Iterable[str], folder: Path, name: str) -> str:
    """Return the digest of a call of a tool and of every file in its folder, whose path is replaced by ``name``."""
    digest = hashlib.sha256(json.dumps([_versions(), tool, *arguments]).encode())
    path, replaced = os.fsencode(folder), name.encode()
    for entry in sorted(folder.rglob("*")):
        digest.update(json.dumps([str(entry.relative_to(folder)), *_kind(entry)]).encode("utf-8", "surrogateescape"))
        if entry.is_file() and not entry.is_symlink():
            digest.update(hashlib.sha256(entry.read_bytes().replace(path, replaced)).digest())
    return digest.hexdigest()


def _kind(entry: Path) -> tuple[str, ...]:
    return ("link", str(entry.readlink())) if entry.is_symlink() else ("folder" if entry.is_dir() else "file",)
