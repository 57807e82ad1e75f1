"""Questions to the disk whose errors are no answers.

Only "no such file" says that a file does not exist. After any other error ``os.path.lexists``, from Python 3.13 on
``Path.glob``, and from 3.14 on ``Path.exists``, ``is_dir`` and ``is_file`` say no. These functions raise it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

NONE = (FileNotFoundError, NotADirectoryError, ValueError)
"""Errors that say that there is nothing of a name; the last is of a name with a NUL, which no file has."""


def is_there(path: Path) -> bool:
    """Return whether there is such a file or folder. Raises OSError if the disk does not say."""
    return _mode(path) != 0


def file_is_there(path: Path) -> bool:
    """Return whether there is such a regular file. Raises OSError if the disk does not say."""
    return stat.S_ISREG(_mode(path))


def folder_is_there(path: Path) -> bool:
    """Return whether there is such a folder. Raises OSError if the disk does not say."""
    return stat.S_ISDIR(_mode(path))


def name_is_taken(path: Path) -> bool:
    """Return whether there is anything of this name, also a link that leads nowhere. Raises OSError if the disk does
    not say."""
    try:
        path.lstat()
    except NONE:
        return False
    return True


def entries_in(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder by their names; none if there is no such folder. Raises OSError if the disk does
    not say."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except NONE:
        return []


def _mode(path: Path) -> int:
    """Return the mode of a file or folder, or of the target of a link; 0 if there is none."""
    try:
        return path.stat().st_mode
    except NONE:
        return 0
