"""What a conversion has written so far: a line per file, so that a killed one goes on where it was.

    <md5> <bytes> <mtime_ns> <ctime_ns> <ARRAY/CHUNK>

A line is written when the file is on the disk and has its name. A line that a kill or a full disk has cut short is no
line. Each process has a journal of its own; a file that is no longer as its line says is read, and counts as written
if its MD5 is that of the line.
"""

import os
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert.conversion.resuming.source_files import FileState, state_of
from stage.digest import md5_file
from stage.manifest import ASKED_AT_ONCE
from stage.progress import progress
from stage.publish import sync_handle

SUFFIX = ".journal"
LINE = re.compile(r"([0-9a-f]{32}) ([0-9]{1,19}) ([0-9]{1,20}) ([0-9]{1,20}) ([^ /\x00]+/[0-9][0-9./]*)", re.ASCII)


@dataclass(frozen=True)
class WrittenFile:
    """A file that is written."""

    md5: str
    state: FileState


class Journal:
    """The journal at ``path``; ``written`` is what it and others know already. Threads may share it."""

    def __init__(self, path: Path, written: Mapping[str, WrittenFile]) -> None:
        self.path = path
        self.written = dict(written)
        """By file name."""
        self.resumed = len(written)
        """Number of files that an earlier, killed conversion made."""
        _cut_off_half_a_line(path)
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._lock = threading.Lock()
        self._torn = False

    def has(self, name: str) -> bool:
        return name in self.written

    def note(self, name: str, written: WrittenFile) -> None:
        """A file is on the disk. Raises OSError where that cannot be noted."""
        state = written.state
        line = f"{written.md5} {state.bytes} {state.mtime_ns} {state.ctime_ns} {name}\n".encode()
        with self._lock:
            rest = b"\n" + line if self._torn else line
            self._torn = True  # half a line is no line, and the next one begins anew
            try:
                while rest:
                    rest = rest[os.write(self._handle, rest) :]
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            self._torn = False
            self.written[name] = written

    def sync(self) -> None:
        sync_handle(self._handle, self.path)

    def close(self) -> None:
        os.close(self._handle)


def _cut_off_half_a_line(path: Path) -> None:
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def read_journals(folder: Path) -> dict[str, WrittenFile]:
    """What all journals in ``folder`` say."""
    found: dict[str, WrittenFile] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for line in path.read_text(encoding="ascii", errors="replace").split("\n")[:-1]:
            match = LINE.fullmatch(line)
            if match is not None:
                found[match[5]] = WrittenFile(match[1], FileState(int(match[2]), int(match[3]), int(match[4])))
    return found


def still_written(folder: Path, written: Mapping[str, WrittenFile]) -> dict[str, WrittenFile]:
    """The files below ``folder`` that are what ``written`` says: untouched since, or of the same contents."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        names = list(written)
        states = dict(zip(names, pool.map(lambda name: _state(folder / name), names), strict=True))
        touched = {
            name: state
            for name, state in states.items()
            if state is not None and state != written[name].state and state.bytes == written[name].state.bytes
        }
        found = {name: one for name, one in written.items() if states[name] == one.state}
        if touched:
            total = sum(state.bytes for state in touched.values())
            with progress("verify", total, "bytes", files=len(touched)) as meter:
                for name, md5 in zip(touched, pool.map(lambda name: md5_file(folder / name), touched), strict=True):
                    meter(touched[name].bytes, files=1)
                    if md5 == written[name].md5:
                        found[name] = WrittenFile(md5, touched[name])
    return found


def _state(path: Path) -> FileState | None:
    try:
        return state_of(path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return None
