"""md5sum-style lists: ``<32 hex digits>  <path>`` per line, paths relative to one folder."""

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from stage.digest import md5_file
from stage.errors import InputError
from stage.progress import progress

LINE = re.compile(r"(\\?)([0-9a-fA-F]{32}) [ *](.+)")


@dataclass(frozen=True)
class Comparison:
    """Paths of a folder against a list."""

    matching: list[str]
    changed: list[str]
    missing: list[str]
    extra: list[str]
    """In the folder but not in the list. Not a difference: a data folder may hold index caches and notes."""

    @property
    def holds(self) -> bool:
        return not self.changed and not self.missing


def digest_folder(folder: Path, *, leave_out: Path | None = None) -> dict[str, str]:
    """MD5 of every file below ``folder`` by relative path, in byte order of the paths.

    Hidden files count; symbolic links to files are followed, to folders not. ``leave_out`` is one file to skip.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    skipped = None if leave_out is None else os.path.relpath(leave_out, folder)
    return _digests(folder, [name for name in files_below(folder) if name != skipped])


def files_below(folder: Path) -> list[str]:
    """Relative paths of all files, in byte order."""
    names = []
    for place, _, files in os.walk(folder):
        names += [os.path.relpath(os.path.join(place, name), folder) for name in files]
    return sorted(names, key=os.fsencode)


def compare(folder: Path, listed: Mapping[str, str]) -> Comparison:
    """Read every listed file below ``folder`` and compare. Raises InputError if ``folder`` is not one."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    present = [name for name in listed if (folder / name).is_file()]
    found = _digests(folder, present)
    return Comparison(
        matching=[name for name in present if found[name] == listed[name]],
        changed=[name for name in present if found[name] != listed[name]],
        missing=[name for name in listed if name not in found],
        extra=[name for name in files_below(folder) if name not in listed],
    )


def format_list(digests: Mapping[str, str]) -> str:
    """The text of a list; a path with a backslash or newline is escaped as md5sum does."""
    lines = []
    for name, digest in digests.items():
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n")
    return "".join(lines)


def read_list(path: Path) -> dict[str, str]:
    """MD5 by path. Blank lines and lines that begin with # are skipped; ``./`` and binary marks are accepted.

    Raises InputError for any other line, and for a path that leaves the folder.
    """
    digests: dict[str, str] = {}
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = LINE.fullmatch(line.rstrip("\r"))
        if match is None:
            raise InputError(f"{path}:{number}: expected '<md5>  <path>', got {line[:80]!r}")
        escaped, digest, name = match.groups()
        if escaped:
            name = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], name)
        name = os.path.normpath(name)
        if digests.get(name, digest.lower()) != digest.lower():
            raise InputError(f"{path}:{number}: {name!r} is listed twice with different sums")
        if os.path.isabs(name) or name.split(os.sep)[0] == "..":
            raise InputError(f"{path}:{number}: {name!r} is not below the folder to verify")
        digests[name] = digest.lower()
    if not digests:
        raise InputError(f"{path}: lists no file")
    return digests


def _digests(folder: Path, names: list[str]) -> dict[str, str]:
    total = sum((folder / name).stat().st_size for name in names)
    with (
        progress("md5", total, "bytes") as advance,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        return dict(zip(names, pool.map(lambda name: md5_file(folder / name, advance), names), strict=True))
