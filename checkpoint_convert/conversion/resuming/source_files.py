"""The files of a conversion's input: as they were when it began, at every read, and at its end.

Compared are size, time of modification and time of change, which no user can set back. Contents are not: a source whose
contents change while all three stay has to lie to the kernel.
"""

import os
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stage.digest import md5_text
from stage.errors import InputError
from stage.manifest import ASKED_AT_ONCE


@dataclass(frozen=True)
class FileState:
    """A file's size and times."""

    bytes: int
    mtime_ns: int
    ctime_ns: int


def state_of(found: os.stat_result) -> FileState:
    return FileState(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class SourceFiles:
    """All files of some arrays, each a folder in ``folder`` or a file there; asked for once, several at a time."""

    def __init__(self, folder: Path, arrays: Iterable[str]) -> None:
        self.folder, self._arrays = folder, list(arrays)
        self._states = self._look()

    def has(self, name: str) -> bool:
        """Whether ``ARRAY/CHUNK`` was there in the beginning."""
        return name in self._states

    def require_as_it_was(self, name: str, found: os.stat_result) -> None:
        """Raise InputError where a file that is read is not what it was."""
        if self._states.get(name) != state_of(found):
            raise self._changed(name)

    def require_unchanged(self) -> None:
        """Raise InputError where any file has come, gone or changed."""
        now = self._look()
        for name in sorted(now.keys() | self._states.keys()):
            if now.get(name) != self._states.get(name):
                raise self._changed(name)

    def fingerprint(self) -> dict[str, Any]:
        """JSON that is the same as long as no file changes."""
        lines = [
            f"{name} {state.bytes} {state.mtime_ns} {state.ctime_ns}\n" for name, state in sorted(self._states.items())
        ]
        total = sum(state.bytes for state in self._states.values())
        return {"files": len(lines), "bytes": total, "md5": md5_text("".join(lines))}

    def _changed(self, name: str) -> InputError:
        return InputError(
            f"{self.folder / name}: changed while it was converted (size or times are others than in the beginning); "
            "nothing was published; run the command again when nobody writes there"
        )

    def _look(self) -> dict[str, FileState]:
        found: dict[str, FileState] = {}
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            for some in pool.map(self._states_in, self._arrays):
                found.update(some)
        return found

    def _states_in(self, array: str) -> dict[str, FileState]:
        """Of regular files; chunks separated by slashes lie in folders."""
        found, folders = {}, [array]
        while folders:
            inside = folders.pop()
            try:
                with os.scandir(self.folder / inside) as entries:
                    for entry in entries:
                        name = f"{inside}/{entry.name}"
                        if entry.is_dir():
                            folders.append(name)
                            continue
                        status = _stat(entry)
                        if status is not None and stat.S_ISREG(status.st_mode):
                            found[name] = state_of(status)
            except FileNotFoundError:
                continue
            except NotADirectoryError:
                status = (self.folder / inside).stat()
                if stat.S_ISREG(status.st_mode):
                    found[inside] = state_of(status)
        return found


def _stat(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat()
    except FileNotFoundError:  # gone meanwhile, or a link to nowhere
        return None
