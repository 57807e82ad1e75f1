"""Small JSON files that processes, watchdogs and the launcher exchange.

They are written whole or not at all, and read as data that may be damaged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

MOST_BYTES = 1 << 24
"""Most bytes of a file: 2,048 host names take a hundredth of it."""
TYPES: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "tuple[str, ...]": tuple}
"""Types of values, by the annotation of their field; any other annotation stands for a text."""
Record = TypeVar("Record")


def write_object(path: Path, content: Any) -> None:
    """Write a dataclass as a JSON object, and make its folder. Raises OSError, and then leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(content)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        if partial.exists():
            partial.unlink()


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None if there is no file, or it holds no JSON object, or is too large."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait as for a pipe
        with os.fdopen(handle, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        value = json.loads(content) if content and len(content) <= MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_record(path: Path, kind: Callable[..., Record]) -> Record | None:
    """Return the dataclass ``kind`` that :func:`write_object` wrote; None if the file is missing or damaged."""
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
