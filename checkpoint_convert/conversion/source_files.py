"""The files of a checkpoint that is converted, on a disk or at an address.

Which files there are, and what they are, is asked before anything is converted. A file that is another one when it is
read ends the conversion. All of them together are one input of the recipe, so that every shard, restart and join
converts the same source or is refused.
"""

import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from checkpoint_convert.formats.chunk_files import open_chunk
from stage.addresses import ASKED_AT_ONCE as OBJECTS_ASKED_AT_ONCE
from stage.addresses import Facts, RemoteFolder
from stage.errors import InputError
from stage.outputs.digest import md5_text
from stage.outputs.manifest import ASKED_AT_ONCE, Source, files_below, identity_of
from stage.progress import progress

MEND = "nothing was published; run the command again when nobody writes there"


class SourceFiles(Protocol):
    """The files of one checkpoint, named relative to its folder. Threads may share it."""

    def where(self, name: str) -> str:
        """Return the path or address of a file or array, for messages."""
        ...

    def has(self, name: str) -> bool:
        """Return whether the file was there in the beginning."""
        ...

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file that was there in the beginning. Raises InputError where it is gone, changed or not to be had."""
        ...

    def source(self) -> Source:
        """Return the files, as they were in the beginning, as one input of a recipe."""
        ...

    def source_now(self) -> Source:
        """Look at all files again and return them likewise."""
        ...


class LocalFiles:
    """Files in a folder."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        """Look for ``names``: folders of arrays, and single files. Other files in ``folder`` do not count."""
        self.folder, self._names = folder, names
        self._states = self._look()

    def where(self, name: str) -> str:
        return str(self.folder / name)

    def has(self, name: str) -> bool:
        return name in self._states

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        path = self.folder / name
        try:
            with os.fdopen(open_chunk(path), "rb", buffering=0) as file:
                self._require_same(name, os.fstat(file.fileno()))
                yield cast(BinaryIO, file)
                self._require_same(name, os.fstat(file.fileno()))
        except OSError as error:  # reading from an open file names none
            raise OSError(error.errno, error.strerror, str(path)) from error

    def source(self) -> Source:
        """The identity covers names, sizes, times of modification and both ends of every file
        (``stage.outputs.manifest.identity_of``); a chmod or a hard link does not change it."""
        states = self._states
        names, lines = sorted(states), []
        with progress("identify", len(names), "files") as meter, ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            identities = pool.map(lambda name: identity_of(self.folder / name, states[name]), names)
            for name, identity in zip(names, identities, strict=True):
                lines.append(f"{identity}  {name}\n")
                meter(1)
        return _as_one(str(self.folder), lines, sum(state.st_size for state in states.values()))

    def source_now(self) -> Source:
        return LocalFiles(self.folder, self._names).source()

    def _require_same(self, name: str, found: os.stat_result) -> None:
        known = self._states.get(name)
        if known is None or (known.st_size, known.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
            raise InputError(
                f"{self.where(name)}: changed while it was converted (its size or time is another); {MEND}"
            )

    def _look(self) -> dict[str, os.stat_result]:
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            return {name: state for some in pool.map(self._below, self._names) for name, state in some}

    def _below(self, name: str) -> list[tuple[str, os.stat_result]]:
        path = self.folder / name
        if path.is_file():
            return [(name, path.stat())]
        return [(f"{name}/{inner}", state) for inner, state in files_below(path)]


class RemoteFiles:
    """Objects below an address. Each is read whole, and kept nowhere."""

    def __init__(self, folder: RemoteFolder, names: Sequence[str], md5: Mapping[str, str] | None = None) -> None:
        """Ask for all of ``names``, some of which may be missing. ``md5``: sums by name that the objects must have."""
        self._folder, self._names, self._md5 = folder, names, md5
        self._facts = self._ask()

    @property
    def unversioned(self) -> int:
        """Return the number of objects whose server tells neither an ETag nor a time."""
        return sum(not facts.version for facts in self._facts.values())

    def where(self, name: str) -> str:
        return str(self._folder.address.below(name))

    def has(self, name: str) -> bool:
        return name in self._facts

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        content = self._folder.read(name, expected=self._facts[name])
        if content is None:
            raise InputError(f"{self.where(name)}: gone while it was converted; {MEND}")
        require_sum(self.where(name), name, content, self._md5)
        yield io.BytesIO(content)

    def source(self) -> Source:
        """The identity covers the size and the ETag, or what stands for it, of every object."""
        facts = self._facts
        lines = [f"{facts[name].bytes} {facts[name].version}  {name}\n" for name in sorted(facts)]
        return _as_one(str(self._folder.address), lines, sum(one.bytes for one in facts.values()))

    def source_now(self) -> Source:
        return RemoteFiles(self._folder, self._names).source()

    def _ask(self) -> dict[str, Facts]:
        found = {}
        with progress("ask", len(self._names), "objects") as meter, ThreadPoolExecutor(OBJECTS_ASKED_AT_ONCE) as pool:
            for name, facts in zip(self._names, pool.map(self._folder.facts, self._names), strict=True):
                meter(1)
                if facts is not None:
                    found[name] = facts
        return found


def require_sum(where: str, name: str, content: bytes, md5: Mapping[str, str] | None) -> None:
    """Raise InputError where ``md5``, sums by name, lacks the object or has another sum; None: any content is taken."""
    if md5 is None:
        return
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5.get(name):
        listed = f"the list has {md5[name]}" if name in md5 else "the list does not have it"
        raise InputError(f"{where}: its MD5 is {found}, {listed}; the checkpoint is damaged there or is another one")


def _as_one(name: str, lines: Sequence[str], size: int) -> Source:
    return Source(name, len(lines), size, f"md5:{md5_text(''.join(lines))}")
