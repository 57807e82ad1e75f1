"""One process at a time in a folder."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stage.errors import InputError

PATIENCE_S = 20.0
"""A process that was just killed may still be writing its last checkpoint."""


@contextmanager
def only_one_in(folder: Path, mend: str, *, name: str = "lock") -> Iterator[None]:
    """Hold the lock file ``name`` in ``folder``.

    Raises InputError, ending with ``mend``, when another process keeps it for 20 s.
    """
    deadline = time.monotonic() + PATIENCE_S
    with (folder / name).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InputError(f"{folder}: in use by another process; {mend}") from None
                time.sleep(0.2)
        yield
