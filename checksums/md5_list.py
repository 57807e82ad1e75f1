"""md5sum-style lists: ``<32 hex digits>  <path>`` per line, paths relative to one folder."""

import os
import re
import resource
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from checksums.small_files import is_sound_small_file
from stage.digest import md5_files
from stage.errors import InputError
from stage.progress import Advance, progress

MD5 = r"(?P<md5>[0-9a-fA-F]{32}|[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){15})"
"""``openssl md5 -c`` has colons in it."""
LINE = re.compile(rf"(?P<escaped>\\?){MD5}[ \t][ \t*]?(?P<name>.+)", re.DOTALL)
TAGGED_LINE = re.compile(rf"(?P<escaped>\\?)(?:MD5|md5) ?\((?P<name>.+)\) ?= ?{MD5}", re.DOTALL)
"""``md5sum --tag``, BSD's md5 and openssl."""
LARGEST_LIST = 1 << 30
"""Bytes; a converted checkpoint's has 15 MB."""
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
UNESCAPES = {escape: character for character, escape in ESCAPES.items()}

SMALL_BYTES = 1 << 20
SMALL_FILES_AT_ONCE = 64
MOST_OPEN_FILES = 512
"""Of the 1,024 a process usually may have; half of what it may have where that is less."""
REPORTED_BYTES = 1 << 24


MAY_DIFFER = ("metadata.json", "common.pt")
"""Of a Megatron zarr checkpoint: what wrote them changes their bytes, a line end or a PyTorch version
(docs/facts/reference.md f.3)."""
MEGATRON_ARRAY = "language_model."
"""How the folder of a weight's array in such a checkpoint begins."""


@dataclass(frozen=True)
class ListComparison:
    """Paths of a folder against a list."""

    matching: list[str]
    changed: list[str]
    missing: list[str]
    may_differ: list[str]
    """Changed, but of a checkpoint's two small files that its converter does not write the same every time, and still
    what such a file is."""
    extra: list[str]
    """In the folder but not in the list. Not a difference: a data folder may hold index caches and notes."""

    @property
    def holds(self) -> bool:
        return not self.changed and not self.missing


def digest_folder(folder: Path, *, leave_out: Path | None = None) -> dict[str, str]:
    """MD5 of every file below ``folder`` by relative path, in byte order of the paths.

    Hidden files count; symbolic links to files are followed, to folders not. ``leave_out`` is one file to skip.
    """
    sizes: dict[str, int] = {}
    for name, size in files_below(folder, leave_out=leave_out).items():
        if size is None:
            raise InputError(f"{folder / name}: a broken link, or not a regular file; it has no sum")
        sizes[name] = size
    return _md5_of_each(folder, sizes)


def files_below(folder: Path, *, leave_out: Path | None = None) -> dict[str, int | None]:
    """Bytes of every file by relative path, in byte order; None for broken links, pipes and the like.

    Raises InputError if ``folder`` is not a folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    skipped = None if leave_out is None else os.path.relpath(leave_out, folder)
    sizes, places = {}, [""]
    while places:
        place = places.pop()
        with os.scandir(folder / place) as entries:
            for entry in entries:
                name = place + entry.name
                if not entry.is_dir() and name != skipped:
                    sizes[name] = entry.stat().st_size if entry.is_file() else None
                elif entry.is_dir(follow_symlinks=False):
                    places.append(name + "/")
    return {name: sizes[name] for name in sorted(sizes, key=os.fsencode)}


def compare_lists(folder: Path, listed: Mapping[str, str], *, leave_out: Path | None = None) -> ListComparison:
    """Read every listed file below ``folder`` and compare; ``leave_out`` does not count as extra.

    Raises InputError if ``folder`` is not a folder.
    """
    below = files_below(folder, leave_out=leave_out)
    sizes: dict[str, int] = {}
    for name in listed:
        size = below.get(name)
        if size is not None:
            sizes[name] = size
        elif (folder / name).is_file():  # in a linked folder
            sizes[name] = (folder / name).stat().st_size
    found = _md5_of_each(folder, sizes)
    changed = [name for name in found if found[name] != listed[name]]
    may_differ = [name for name in _may_differ(changed, listed) if is_sound_small_file(folder / name)]
    return ListComparison(
        matching=[name for name in found if found[name] == listed[name]],
        changed=[name for name in changed if name not in may_differ],
        may_differ=may_differ,
        missing=[name for name in listed if name not in found],
        extra=[name for name in below if name not in listed],
    )


def _may_differ(changed: Sequence[str], listed: Mapping[str, str]) -> list[str]:
    """The small files of a Megatron zarr checkpoint, known by the arrays that the list has beside them."""

    def beside(name: str) -> str:
        return str(Path(name).parent / MEGATRON_ARRAY)

    small = [name for name in changed if Path(name).name in MAY_DIFFER]
    return [name for name in small if any(other.startswith(beside(name)) for other in listed)]


def format_list(digests: Mapping[str, str]) -> str:
    """The text of a list; a path with a backslash or line end is escaped as md5sum does."""
    lines = []
    for name, digest in digests.items():
        escaped = re.sub(r"[\\\n\r]", lambda found: ESCAPES[found[0]], name)
        lines.append(f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n")
    return "".join(lines)


def read_list(path: Path) -> dict[str, str]:
    """MD5 by path, as md5sum, ``md5sum --tag``, ``md5sum --zero``, BSD's md5 and openssl write it.

    Blank lines and lines that begin with # are skipped; ``./`` and binary marks are accepted. Raises InputError for
    any other line, and for a path that begins with ``..``.
    """
    digests: dict[str, str] = {}
    text = _text_of(path)
    end = "\0" if "\0" in text else "\n"
    for number, line in enumerate(text.split(end), 1):
        if end == "\n":
            line = line.removesuffix("\r").lstrip(" \t")
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line) or TAGGED_LINE.fullmatch(line)
        if match is None:
            raise InputError(f"{path}:{number}: expected '<md5>  <path>' or 'MD5 (<path>) = <md5>', got {line[:80]!r}")
        name, digest = match["name"], match["md5"].lower().replace(":", "")
        if match["escaped"] and end == "\n":
            name = re.sub(r"\\.", lambda found: UNESCAPES.get(found[0], found[0]), name)
        name = os.path.normpath(name).replace("//", "/")  # normpath keeps two slashes at the beginning
        if digests.get(name, digest) != digest:
            raise InputError(f"{path}:{number}: {name!r} is listed twice with different sums")
        if name.split("/")[0] == "..":
            raise InputError(f"{path}:{number}: {name!r} is not below the folder to verify")
        digests[name] = digest
    if not digests:
        raise InputError(f"{path}: lists no file")
    return digests


def begins_list(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a list as :func:`format_list` writes it."""
    return re.match(rb"\\?[0-9a-f]{32}  .", head) is not None


def _text_of(path: Path) -> str:
    """Raises InputError for what is no file, or a list of nothing we know."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_LIST:
        raise InputError(f"{path}: expected a list of MD5 sums, a file of at most {LARGEST_LIST:,} bytes")
    return os.fsdecode(path.read_bytes())  # as the names of files are, whatever the locale


def without_leading_folders(folder: Path, listed: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The folders that all paths of a list begin with beyond ``folder``, and the list without them.

    A list may have been made from higher up, or with absolute paths. What its paths begin with is taken off as far as
    it takes to find a file, unless it is in ``folder`` too. Raises InputError for absolute paths not understood so.
    """
    first, last = (name[: name.rfind("/") + 1] for name in (min(listed), max(listed)))  # all others are in between
    leadings = [first[: slash.end()] for slash in re.finditer("/", first) if last.startswith(first[: slash.end()])]
    absolute = next((name for name in listed if os.path.isabs(name)), None)
    if absolute is None:
        leadings = ["", *(leadings if leadings and not (folder / leadings[0]).exists() else [])]
    for leading in leadings:
        if any((folder / name[len(leading) :]).is_file() for name in listed):
            return leading, {name[len(leading) :]: digest for name, digest in listed.items()}
    if absolute is not None:
        raise InputError(f"{absolute!r} is listed, which is not below {folder}")
    return "", dict(listed)


def _md5_of_each(folder: Path, sizes: Mapping[str, int]) -> dict[str, str]:
    """MD5 of the files, in the order of ``sizes``, by a thread per core: Python reads and hashes in parallel."""
    most_open = min(MOST_OPEN_FILES, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    threads = min(len(os.sched_getaffinity(0)), most_open)
    batches = _batches(sizes, threads, most_open)
    found: dict[str, str] = {}
    with progress("md5", sum(sizes.values()), "bytes") as advance, ThreadPoolExecutor(threads) as pool:
        meter = _Meter(advance)
        try:
            sums = pool.map(lambda names: md5_files([os.path.join(folder, name) for name in names], meter), batches)
            for names, digests in zip(batches, sums, strict=True):
                found.update(zip(names, digests, strict=True))
        except BaseException:
            meter.stopped = True
            raise
    return {name: found[name] for name in sizes}


def _batches(sizes: Mapping[str, int], threads: int, most_open: int) -> list[list[str]]:
    """Large files alone, the largest first, so that no thread is left with one at the end; small ones together."""
    large = sorted((name for name, size in sizes.items() if size > SMALL_BYTES), key=lambda name: -sizes[name])
    small = [name for name, size in sizes.items() if size <= SMALL_BYTES]
    length = max(1, min(SMALL_FILES_AT_ONCE, most_open // threads, -(-len(small) // threads)))
    return [[name] for name in large] + [small[at : at + length] for at in range(0, len(small), length)]


class _Meter:
    """Passes on what many threads report, in larger amounts; ends them when ``stopped``."""

    def __init__(self, advance: Advance) -> None:
        self.stopped = False
        self._advance, self._lock, self._amount = advance, Lock(), 0.0

    def __call__(self, amount: float) -> None:
        if self.stopped:
            raise CancelledError
        with self._lock:
            self._amount += amount
            if self._amount >= REPORTED_BYTES:
                self._advance(self._amount)
                self._amount = 0.0
