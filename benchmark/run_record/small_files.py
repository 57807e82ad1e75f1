"""Small JSON files that processes, watchdogs and the launcher exchange; and waiting for a disk that gives no answer.

The files are written whole or not at all, and read as data that may be damaged. An error of a call is no evidence: only
"no such file" says that a file does not exist, and only its content says that it is damaged. After any other error
:func:`wait_for` tries again.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

MOST_BYTES = 1 << 24
"""Most bytes of a file: 2,048 host names take a hundredth of it."""
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ELOOP, errno.EAGAIN)
"""Errors of a path at which there is no regular file: nothing, a folder, a pipe, a circle of links."""
TYPES: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "tuple[str, ...]": tuple}
"""Types of values, by the annotation of their field; any other annotation stands for a text."""
Record = TypeVar("Record")
Answer = TypeVar("Answer")
LOOK_S = 5.0
"""Seconds between tries of :func:`wait_for`."""
SHORT_LOOK_S = 0.5


def warn(text: str) -> None:
    """Print a line to the standard error; a closed terminal stops nothing."""
    with suppress(OSError):
        print(f"warning: {text}", file=sys.stderr, flush=True)


def folder_problem(folder: Path) -> str:
    """Return why there can be no folder of this name that this user may write; empty if there can."""
    nearest = folder
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{'' if nearest == folder else f'{nearest} is '}a file; expected a folder"
    if nearest == Path(nearest.anchor) or os.access(nearest, os.W_OK | os.X_OK):  # other machines have more there
        return ""
    return f"{nearest} may not be written; choose another folder"


class StoppedWaiting(Exception):
    """An order to stop came while an answer was waited for."""


def wait_for(
    act: Callable[[], Answer],
    limit_s: float,
    tell: Callable[[str], object],
    *,
    is_ordered: Callable[[], object] = lambda: None,
    answers: tuple[type[OSError], ...] = (FileNotFoundError,),
) -> Answer:
    """Return the result of ``act``, which is called again after an OSError for at most ``limit_s`` seconds.

    ``tell``: takes a line with the path, at the first error. ``answers``: errors that say something, which are raised
    at once. Raises the last OSError after the limit, and StoppedWaiting once ``is_ordered`` returns a true value.
    """
    deadline: float | None = None
    while True:
        try:
            return act()
        except answers:
            raise
        except OSError as error:
            now_s = time.monotonic()
            if deadline is None:
                deadline = now_s + limit_s
                subject = "" if error.filename is None else f"{error.filename}: "
                tell(f"{subject}{error.strerror or error}; tried again for up to {limit_s:g} s")
            if now_s >= deadline:
                raise
        if is_ordered():
            raise StoppedWaiting
        time.sleep(min(LOOK_S, max(SHORT_LOOK_S, limit_s / 20)))


def write_object(path: Path, content: Any, *, indent: int | None = None) -> None:
    """Write a dataclass as a JSON object, and make its folder. Raises OSError, and then leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(content), indent=indent) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None if there is no regular file, or it holds no JSON object, or is too large.

    Raises OSError if the disk does not say.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait as for a pipe
        with os.fdopen(handle, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise
    try:
        value = json.loads(content) if content and len(content) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_record(path: Path, kind: Callable[..., Record]) -> Record | None:
    """Return the dataclass ``kind`` that :func:`write_object` wrote; None if the file is missing or damaged.

    Raises OSError if the disk does not say.
    """
    values = read_object(path)
    if values is None:
        return None
    try:
        record: Any = kind(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )
    except TypeError:
        return None
    return record if all(_fits(getattr(record, field.name), str(field.type)) for field in fields(record)) else None


def _fits(value: Any, annotation: str) -> bool:
    """Return whether a value has the type of its field; ``annotation``: the type's source text."""
    name, _, or_none = annotation.partition(" | ")
    if value is None:
        return bool(or_none)
    sound = not isinstance(value, tuple) or all(isinstance(item, str) for item in value)
    return sound and isinstance(value, TYPES.get(name, str))
