"""Small JSON files that processes, watchdogs and the launcher exchange.

They are written whole or not at all, and read as data that may be damaged.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 24
"""Most bytes of a file: 2,048 host names take a hundredth of it."""


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
        found = json.loads(content) if content and len(content) <= MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
