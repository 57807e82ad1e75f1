"""A courtesy: the second process that would do the same work is told so.

Nothing depends on it. Whatever two processes make at once has unique names until it is whole (``publish``,
``resumable_output``), so where a file system has no locks, or they do not reach other machines, work is wasted and
nothing is lost.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from stage.errors import InputError

PATIENCE_S = 20.0
"""A process that was just killed may still be writing its last checkpoint."""


@contextmanager
def only_one_in(folder: Path, mend: str, *, name: str = "lock") -> Iterator[None]:
    """Hold the lock file ``name`` in ``folder``. Raises InputError, ending with ``mend``, when another process keeps it
    for PATIENCE_S seconds, and FileNotFoundError where there is no such folder."""
    if not folder.is_dir():  # the library would make it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    lock = filelock.FileLock(folder / name, fallback_to_soft=False)
    try:
        lock.acquire(timeout=PATIENCE_S)
    except filelock.Timeout:
        raise InputError(f"{folder}: in use by another process; {mend}") from None
    except (OSError, NotImplementedError):  # a file system without locks
        pass
    try:
        yield
    finally:
        lock.release()
