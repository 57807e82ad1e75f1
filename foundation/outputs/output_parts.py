"""The parts of a resumable output on the disk, the journals that list them, and files that are still being written."""

import functools
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec

from foundation.disk_answers import entries_in
from foundation.grouped_tasks import grouped_map
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import ASKED_AT_ONCE
from foundation.progress import progress

RECIPE, PUBLISH = "recipe.json", "publish.json"
JOURNAL, PARTS, WRITING = "journal", "pieces", "writing"
STALE_S = 86_400
"""Seconds without a change after which a file that another machine was writing counts as left by a killed process."""


@dataclass(frozen=True)
class OutputPart:
    """A finished part; a line of the journal."""

    name: str
    """Path below ``pieces/``."""
    bytes: int
    md5: str
    ctime_ns: int
    """Time of change, which nobody can set back; if it differs, the part is read again before it counts."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The job's own notes; JSON values."""


@dataclass(frozen=True)
class NewPart:
    """A written part that has not got its name yet."""

    name: str
    path: Path
    """Path that it was written to, from ``ResumableOutput.new_path``."""
    md5: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def journalled_parts(folder: Path) -> list[OutputPart]:
    """Return the entries of all journals in OUTPUT.partial."""
    parts = []
    decoder = msgspec.json.Decoder(OutputPart)
    for entry in entries_in(folder / JOURNAL):
        for line in Path(entry).read_bytes().splitlines() if entry.name.endswith(".jsonl") else ():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # a line that a kill or a full disk has cut short
                parts.append(decoder.decode(line))
    return parts


def finished_parts(folder: Path) -> dict[str, OutputPart]:
    """Return the parts on which the journals and the disk agree, by name; parts touched since are read again."""

    def state(part: OutputPart) -> tuple[int, int] | None:
        try:
            status = (folder / PARTS / part.name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size, status.st_ctime_ns

    parts = journalled_parts(folder)
    states = list(zip(parts, grouped_map(state, parts, ASKED_AT_ONCE), strict=True))
    done = {part.name: part for part, part_state in states if part_state == (part.bytes, part.ctime_ns)}
    touched = [
        part for part, part_state in states if part.name not in done and part_state and part_state[0] == part.bytes
    ]
    if touched:
        with (
            progress("verify", sum(part.bytes for part in touched), "bytes", files=len(touched)) as meter,
            ThreadPoolExecutor(ASKED_AT_ONCE) as pool,
        ):
            sums = pool.map(lambda part: md5_file(folder / PARTS / part.name, meter), touched)
            done |= {part.name: part for part, md5 in zip(touched, sums, strict=True) if md5 == part.md5}
    return done


def new_name() -> str:
    """Return a name in ``writing/`` that no other process uses; it begins with this machine and this process."""
    return f"{_machine()}-{os.getpid()}-{secrets.token_hex(8)}"


def remove_left_files(folder: Path) -> None:
    """Remove what killed processes have left in ``writing/`` of OUTPUT.partial.

    A file of a process of this machine is removed if that process has ended. Of other machines nobody knows, so their
    files must have been without a change for STALE_S.
    """
    try:
        paths = list((folder / WRITING).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in paths:
        machine, _, remainder = path.name.partition("-")
        process = remainder.partition("-")[0]
        with suppress(FileNotFoundError):  # its process has finished it
            if machine == _machine() and process.isdecimal():
                is_left = not _is_alive(int(process))
            else:
                is_left = time.time() - _last_change(path) > STALE_S
            if is_left:
                rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _last_change(path: Path) -> float:
    """Return the time of the last change in a file or folder."""
    entries = [path, *(path.rglob("*") if path.is_dir() else ())]
    return max(float(entry.lstat().st_mtime) for entry in entries)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; no such number
        pass
    return True


@functools.cache
def _machine() -> str:
    """Return a name of this machine since its start, and of the namespace in which its processes are numbered."""
    texts = [socket.gethostname()]
    with suppress(OSError):
        texts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        texts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:12]
