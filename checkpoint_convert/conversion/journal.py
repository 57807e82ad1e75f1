"""What a conversion has written so far: a line per file, so that a killed one goes on where it was.

The first line says what is being made of what; a journal that says something else is not used. Every further line is
``<md5> <bytes> <file>``, written after the file; a last line that a kill has cut short does not count.
"""

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stage.errors import InputError


class Journal:
    """The journal at ``path`` of the files in ``folder``; ``purpose`` is any JSON. Threads may share it."""

    def __init__(self, path: Path, folder: Path, purpose: Mapping[str, Any]) -> None:
        self.path = path
        self._purpose = json.dumps(purpose, sort_keys=True)
        self.digests: dict[str, str] = {}
        """MD5 by file name."""
        self._file = path.open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{path}: another conversion is writing it; wait for it to end") from None
        self.resumed = self._read(folder)
        """Number of files that an earlier, killed conversion made."""
        if not self.resumed:
            self._file.truncate(0)
            self._file.write(self._purpose + "\n")
        self._lock = threading.Lock()

    def _read(self, folder: Path) -> int:
        lines = self.path.read_text().split("\n")
        present = _sizes(folder)  # a crash of the machine can leave files that are shorter than they were written
        if lines[0] != self._purpose:
            return 0
        for line in lines[1:-1]:  # after the last newline: nothing, or a line cut short
            digest, size, name = line.split(" ", 2)
            if present.get(name) == int(size):
                self.digests[name] = digest
        os.truncate(self.path, len("\n".join([*lines[:-1], ""]).encode()))
        return len(self.digests)

    def has(self, name: str) -> bool:
        return name in self.digests

    def note(self, name: str, md5: str, size: int) -> None:
        """A file of ``size`` bytes is written."""
        with self._lock:
            self.digests[name] = md5
            self._file.write(f"{md5} {size} {name}\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes of every file below, by relative name."""
    found: dict[str, int] = {}
    for array in folder.iterdir() if folder.is_dir() else ():
        if array.is_dir():
            with os.scandir(array) as entries:
                found.update({f"{array.name}/{entry.name}": entry.stat().st_size for entry in entries})
    return found
