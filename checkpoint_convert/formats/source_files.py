"""The files of a checkpoint, on a disk or at an address, named relative to its folder.

Whoever converts or exports a checkpoint asks first for all files that are needed. A file that is another one when it is
read ends the work. All of them together are one input of the recipe, so that every shard, restart and join reads the
same source or is refused.
"""

import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from checkpoint_convert.formats.byte_ranges import open_regular
from stage.addresses import Facts, RemoteFolder
from stage.errors import InputError
from stage.outputs.digest import md5_text
from stage.outputs.manifest import ASKED_AT_ONCE, Source, identity_of
from stage.progress import progress

MEND = "nothing was published; run the command again when nobody writes there"


class SourceFiles(ABC):
    """The files of one checkpoint. Threads may share it."""

    def __init__(self, folder: object) -> None:
        self.folder = folder
        """Path or address."""
        self.facts: dict[str, Facts] = {}
        """Size and version of the files that were asked for and are there."""
        self._asked: list[str] = []

    def ask(self, names: Iterable[str]) -> None:
        """Look for files, which are taken for what they are now. Raises InputError where a server gives no answer."""
        names = list(names)
        with progress("look at", len(names), "files") as meter, ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            for name, facts in zip(names, pool.map(self._facts_of, names), strict=True):
                meter(1)
                if facts is not None:
                    self.facts[name] = facts
        self._asked += names

    def has(self, name: str) -> bool:
        """Return whether a file that was asked for was there."""
        return name in self.facts

    def source(self) -> Source:
        """Return the files that were asked for as one input of a recipe."""
        names = sorted(self.facts)
        with progress("identify", len(names), "files") as meter, ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            lines = []
            for name, identity in zip(names, pool.map(self._identity, names), strict=True):
                lines.append(f"{identity}  {name}\n")
                meter(1)
        size = sum(facts.bytes for facts in self.facts.values())
        return Source(str(self.folder), len(names), size, f"md5:{md5_text(''.join(lines))}")

    def source_now(self) -> Source:
        """Look at all files again and return them likewise."""
        names, self.facts, self._asked = self._asked, {}, []
        self.ask(names)
        return self.source()

    @abstractmethod
    def where(self, name: str) -> str:
        """Return the path or address of a file or array, for messages."""

    @abstractmethod
    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file. Raises FileNotFoundError where there is none, InputError where it changed since it was asked for
        or is not to be had, and other OSErrors."""

    @abstractmethod
    def _facts_of(self, name: str) -> Facts | None: ...

    @abstractmethod
    def _identity(self, name: str) -> str:
        """Return what tells the file's content from another."""


class LocalFiles(SourceFiles):
    """Files in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._states: dict[str, os.stat_result] = {}
        self._identities: dict[tuple[str, int, int, int], str] = {}
        """By name, size, and times of modification and change: what has all of them is not read again."""

    def where(self, name: str) -> str:
        return str(self._folder / name)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        with open_regular(self._folder / name) as file:
            self._require_same(name, os.fstat(file.fileno()))
            yield file
            self._require_same(name, os.fstat(file.fileno()))

    def _facts_of(self, name: str) -> Facts | None:
        try:
            state = (self._folder / name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        self._states[name] = state
        return _local_facts(state)

    def _identity(self, name: str) -> str:
        """The identity covers name, size, time of modification and both ends (``stage.outputs.manifest.identity_of``);
        a chmod or a hard link does not change it."""
        state = self._states[name]
        key = (name, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if key not in self._identities:
            self._identities[key] = identity_of(self._folder / name, state)
        return self._identities[key]

    def _require_same(self, name: str, state: os.stat_result) -> None:
        if self.facts.get(name, found := _local_facts(state)) != found:
            raise InputError(f"{self.where(name)}: changed while it was read (its size or time is another); {MEND}")


def _local_facts(state: os.stat_result) -> Facts:
    return Facts(state.st_size, str(state.st_mtime_ns))


class RemoteFiles(SourceFiles):
    """Objects below an address. Each is read whole, and kept nowhere."""

    def __init__(self, folder: RemoteFolder, md5: Mapping[str, str] | None = None) -> None:
        """``md5``: sums by name that all that is read must have."""
        super().__init__(folder.address)
        self._folder, self._md5 = folder, md5

    @property
    def unversioned(self) -> int:
        """Return the number of objects whose server tells neither an ETag nor a time."""
        return sum(not facts.version for facts in self.facts.values())

    def where(self, name: str) -> str:
        return str(self._folder.address.below(name))

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        if name not in self.facts:
            raise FileNotFoundError(self.where(name))
        content = self._folder.read(name, expected=self.facts[name])
        if content is None:
            raise InputError(f"{self.where(name)}: gone while it was read; {MEND}")
        self._require_sum(name, content)
        yield io.BytesIO(content)

    def _facts_of(self, name: str) -> Facts | None:
        return self._folder.facts(name)

    def _identity(self, name: str) -> str:
        """The identity covers size and ETag, or what stands for it."""
        return f"{self.facts[name].bytes} {self.facts[name].version}"

    def _require_sum(self, name: str, content: bytes) -> None:
        if self._md5 is None:
            return
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != self._md5.get(name):
            listed = f"the list has {self._md5[name]}" if name in self._md5 else "the list does not have it"
            raise InputError(
                f"{self.where(name)}: its MD5 is {found}, {listed}; the checkpoint is damaged there or is another one"
            )
