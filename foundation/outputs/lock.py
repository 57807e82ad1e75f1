"""A lock as a courtesy: a second process that would do the same work is told so.

Correctness does not depend on it. Files that two processes make at once have unique names until they are whole
(``publish``, ``resumable_output``). So if a file system has no locks, or they do not reach other machines, work is
wasted but nothing is lost.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from foundation.disk_answers import folder_is_there
from foundation.errors import InputError

PATIENCE_S = 20.0
"""Seconds to wait for the lock: a process that was just killed may still be writing its last checkpoint."""


@contextmanager
def only_one_in(folder: Path, mend: str, *, name: str = "lock", longer_s: float = 0) -> Iterator[None]:
    """Hold the lock file ``name`` in ``folder``.

    Raises InputError, ending with ``mend``, if another process keeps it for PATIENCE_S and ``longer_s`` seconds, and
    FileNotFoundError if there is no such folder.
    """
    if not folder_is_there(folder):  # the library would make it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    lock = filelock.FileLock(folder / name, fallback_to_soft=False)
    try:
        lock.acquire(timeout=PATIENCE_S + longer_s)
    except filelock.Timeout:
        raise InputError(f"{folder}: in use by another process; {mend}") from None
    except (OSError, NotImplementedError):  # a file system without locks
        pass
    try:
        yield
    finally:
        lock.release()
