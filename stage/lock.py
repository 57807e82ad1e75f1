"""One process at a time in a folder, on one machine or on many.

Two things, either of which may be missing: a lock of the file system (``lock``), which is free the moment its holder
ends, but on some file systems is seen by one machine only (Lustre with localflock, NFS with nolock) or does not exist;
and a claim (``lock.owner``), which every machine sees, but which waits for the beats of an owner elsewhere to stay out.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from stage.claims.claim_file import Claim, Watch, owner_of, try_claim
from stage.claims.process_identity import ProcessIdentity, this_process
from stage.errors import InputError

PATIENCE_S = 20.0
"""A process that was just killed may still be writing its last checkpoint; longer than a claim's STALE_S."""
BETWEEN_TRIES_S = 0.2
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


def owner_path(folder: Path, name: str = "lock") -> Path:
    """The claim beside the lock file."""
    return folder / f"{name}.owner"


@contextmanager
def only_one_in(folder: Path, mend: str, *, name: str = "lock") -> Iterator[Claim]:
    """Hold the lock file ``name`` in ``folder``, and the claim beside it, which is yielded.

    Before anything is published, ask the claim whether it is still held. Raises InputError, ending with ``mend``, when
    another process keeps it for 20 s, and where whoever had it has removed the folder.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with _opened(folder, name) as lock:
            claim = _wait_for(lock, folder, name, mend, deadline)
            if claim is None:
                continue
            try:
                yield claim
            finally:
                claim.release()
            return


def gone(folder: Path) -> InputError:
    """For whoever worked, or wanted to work, in a folder that is not there any more."""
    return InputError(
        f"{folder}: gone meanwhile, for another process has finished or removed it; run the command again"
    )


def _opened(folder: Path, name: str) -> TextIOWrapper:
    try:
        return (folder / name).open("w")
    except FileNotFoundError:
        raise gone(folder) from None


def _wait_for(lock: TextIOWrapper, folder: Path, name: str, mend: str, deadline: float) -> Claim | None:
    """None: the lock file was removed or replaced by whoever had it, so that holding it keeps nobody out."""
    watch, path = Watch(), owner_path(folder, name)
    locked: bool | None = False
    while True:
        holder: Claim | ProcessIdentity | None = None
        locked = locked or _lock(lock)
        if locked is not False:
            if not _is_in_its_place(lock):
                return None
            try:
                ended = _ended_as_the_lock_is_ours if locked else ProcessIdentity.has_ended
                holder = try_claim(path, watch, ended=ended)
            except FileNotFoundError:
                raise gone(folder) from None
            if isinstance(holder, Claim):
                return holder
        if time.monotonic() > deadline:
            who = holder or owner_of(path)
            raise InputError(f"{folder}: in use by another process{f' ({who})' if who else ''}; {mend}") from None
        time.sleep(BETWEEN_TRIES_S)


def _is_in_its_place(lock: TextIOWrapper) -> bool:
    try:
        return os.path.samestat(os.fstat(lock.fileno()), Path(lock.name).stat())
    except FileNotFoundError:
        return False


def _ended_as_the_lock_is_ours(owner: ProcessIdentity) -> bool | None:
    """Of this machine nobody else holds the lock, in whatever container."""
    return True if owner.machine == this_process().machine else None


def _lock(lock: TextIOWrapper) -> bool | None:
    """Whether the lock is ours now; None where the file system has no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise OSError(error.errno, error.strerror, lock.name) from error
