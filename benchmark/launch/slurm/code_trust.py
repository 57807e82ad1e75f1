"""Decide whether a run's copy of the code may run: only this user and root may be able to write it.

``run_gpt3.sh`` decides in the same way before it reads a file of the copy.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def distrust(code: Path) -> str | None:
    """Return the reason why the code below ``code`` must not run; None if nobody but this user and root may write it.

    The files, their folders and all folders above are checked. In a folder above with the sticky bit, such as /tmp,
    only the owner of an entry can exchange it. Raises OSError if the disk does not say.
    """
    if code.parent.resolve() / code.name != code.resolve() or code.parent.is_symlink():
        return f"{code} or its folder is a link"
    private = _private_group()
    for path in code.resolve().parents:
        reason = _reason(path.stat(), private, sticky_is_safe=True)
        if reason is not None:
            return f"{path} {reason}"
    for name in _entries(code):
        status = os.lstat(name)
        reason = _reason(status, private, sticky_is_safe=False)
        if reason is None and not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            reason = "is neither a file nor a folder"
        if reason is not None:
            return f"{name} {reason}"
    return None


def _entries(code: Path) -> Iterator[str]:
    """Yield the folder and all paths below it. Raises OSError for a folder that cannot be listed."""

    def fail(error: OSError) -> None:
        raise error

    yield str(code)
    for folder, folders, files in os.walk(code, onerror=fail):
        yield from (os.path.join(folder, name) for name in (*folders, *files))


def _reason(status: os.stat_result, private: int | None, *, sticky_is_safe: bool) -> str | None:
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}"
    if sticky_is_safe and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    return "can be written by its group" if status.st_mode & stat.S_IWGRP and status.st_gid != private else None


def _private_group() -> int | None:
    """Return the number of the group that has the user's name and no other member; None for root, or without one."""
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
        if user.pw_uid != 0 and group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}:
            return group.gr_gid
    return None
