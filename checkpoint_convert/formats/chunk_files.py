"""Files of chunks: every one is there and is a file.

Zarr reads a chunk without a file as its fill value. Neither PAXML nor the reference's converter leaves one out, so one
that is not there was lost.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from stage.errors import InputError

MEND = "the checkpoint is not whole: copy or fetch it again"


def chunk_key(numbers: Sequence[int], separator: str) -> str:
    """Return the name of a chunk's file; the only one of an array without axes is called 0."""
    return separator.join(map(str, numbers)) or "0"


def open_chunk(path: Path) -> int:
    """Open a chunk's file for reading and return its handle. Never waits, as opening a pipe would.

    Raises InputError where there is none, and for anything but a regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise missing_chunk(path) from error
    try:
        _require_regular(path, os.fstat(handle).st_mode)
    except BaseException:
        os.close(handle)
        raise
    return handle


def missing_chunk(path: Path) -> InputError:
    return InputError(f"{path.parent}: chunk {path.name} is missing; {MEND}")


def require_chunk(path: Path) -> None:
    """Raise InputError where another library, which would wait for a pipe, is not to open ``path``."""
    try:
        _require_regular(path, path.stat().st_mode)
    except FileNotFoundError as error:
        raise missing_chunk(path) from error


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: not a regular file; {MEND}")
