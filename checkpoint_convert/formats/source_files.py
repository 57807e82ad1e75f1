"""The files of a checkpoint, on a disk or at an address, named relative to its folder.

A conversion or export first asks for all files that it needs. If a file has changed when it is read, the work ends. All
files together are one input of the recipe, so that every shard, restart and join reads the same source or is refused.
Bytes decide and times do not: a copy of a checkpoint on another disk is the same source.
"""

import hashlib
import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from checkpoint_convert.formats.stored_array import open_regular
from foundation.errors import InputError
from foundation.grouped_tasks import grouped_map
from foundation.network.object_store import ObjectFacts
from foundation.network.remote_folder import DeniedObject, RemoteFolder
from foundation.outputs.digest import md5_samples, md5_text
from foundation.outputs.manifest import ASKED_AT_ONCE, SAMPLED, Source, identity_of
from foundation.progress import progress

PUBLISHED_NOTHING = "nothing was published; run the command again when nobody writes there"


class SourceFiles(ABC):
    """The files of one checkpoint. Threads may share it."""

    kind = "md5"
    """Kind of the identity of all files together."""

    def __init__(self, folder: object) -> None:
        self.folder = folder
        """Path or address of the checkpoint's folder."""
        self.facts: dict[str, ObjectFacts | None] = {}
        """Size and version of the files that were asked for; None for a file that does not exist."""

    def ask(self, names: Iterable[str]) -> None:
        """Look for files and note their present state. Raises InputError if a server gives no answer."""
        names = list(names)
        with progress("look at", len(names), "files") as meter:
            for name, facts in zip(names, grouped_map(self._facts_of, names, ASKED_AT_ONCE), strict=True):
                self.facts[name] = facts
                meter(1)

    def has(self, name: str) -> bool:
        """Return whether a file existed when it was asked for."""
        return self.facts.get(name) is not None

    def source(self) -> Source:
        """Return the files that were asked for as one input of a recipe."""
        existing = {name: facts for name, facts in sorted(self.facts.items()) if facts is not None}
        with progress("identify", len(existing), "files") as meter:
            lines = []
            for name, identity in zip(existing, grouped_map(self._identity, existing, ASKED_AT_ONCE), strict=True):
                lines.append(f"{identity}  {name}\n")
                meter(1)
        size = sum(facts.bytes for facts in existing.values())
        return Source(str(self.folder), len(existing), size, f"{self.kind}:{md5_text(''.join(lines))}")

    def source_now(self) -> Source:
        """Look at all files again and return them as one input of a recipe."""
        self.ask(list(self.facts))
        return self.source()

    @abstractmethod
    def where(self, name: str) -> str:
        """Return the path or address of a file or array, for messages."""

    @abstractmethod
    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file. Raises FileNotFoundError if it does not exist, InputError if it changed since it was asked for
        or cannot be had, and other OSErrors."""

    @abstractmethod
    def _facts_of(self, name: str) -> ObjectFacts | None: ...

    @abstractmethod
    def _identity(self, name: str) -> str:
        """Return a text that changes with the file's content."""


class LocalFiles(SourceFiles):
    """Files in a folder."""

    kind = SAMPLED

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder

    def where(self, name: str) -> str:
        return str(self._folder / name)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        with open_regular(self._folder / name) as file:
            self._require_same(name, os.fstat(file.fileno()))
            yield file
            self._require_same(name, os.fstat(file.fileno()))

    def _facts_of(self, name: str) -> ObjectFacts | None:
        try:
            return _local_facts((self._folder / name).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _identity(self, name: str) -> str:
        """Return the file's identity: of a small file all bytes, of a large one its size, middle and both ends."""
        path = self._folder / name
        status = path.stat()
        if status.st_size <= 1 << 20:
            return identity_of(path, status)
        return f"{SAMPLED}:{md5_samples(path, samples=3)}"

    def source_now(self) -> Source:
        """Look at all files again. Raises InputError if the size or time of one is not that of the first look, because
        it may have changed after it was read."""
        first_facts = dict(self.facts)
        source = super().source_now()
        for name, facts in self.facts.items():
            if facts != first_facts[name]:
                raise _changed(self.where(name))
        return source

    def _require_same(self, name: str, state: os.stat_result) -> None:
        facts = self.facts.get(name)
        if facts is not None and facts != _local_facts(state):
            raise _changed(self.where(name))


def _changed(path: str) -> InputError:
    return InputError(f"{path}: changed while it was read (its size or time is another); {PUBLISHED_NOTHING}")


def _local_facts(state: os.stat_result) -> ObjectFacts:
    return ObjectFacts(state.st_size, str(state.st_mtime_ns))


class RemoteFiles(SourceFiles):
    """Objects below an address. Each is read whole, and no copy is kept."""

    def __init__(self, folder: RemoteFolder, md5: Mapping[str, str] | None = None) -> None:
        """``md5``: sums by name that everything read must have."""
        super().__init__(folder.address)
        self._folder, self._md5 = folder, md5
        self._denied: dict[str, DeniedObject] = {}
        self._denial_printed = False

    def ask(self, names: Iterable[str]) -> None:
        """Look for files. Stores that do not list their objects deny those that do not exist: once another object of
        the checkpoint was answered, a denied one counts as missing."""
        self._denied.clear()
        super().ask(names)
        if self._denied and not any(self.facts.values()):
            raise min(self._denied.items())[1]
        if self._denied and not self._denial_printed:
            self._denial_printed = True
            print(
                f"{self.folder}: access to objects is denied, first {min(self._denied)}; they count as missing, "
                "because the server may not say which objects exist",
                file=sys.stderr,
            )

    @property
    def unversioned(self) -> int:
        """Return the number of objects whose server tells neither an ETag nor a time."""
        return sum(facts is not None and not facts.version for facts in self.facts.values())

    def where(self, name: str) -> str:
        return str(self._folder.address.below(name))

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        if not self.has(name):
            raise FileNotFoundError(self.where(name))
        content = self._folder.read(name, expected=self.facts[name])
        if content is None:
            raise InputError(f"{self.where(name)}: gone while it was read; {PUBLISHED_NOTHING}")
        if self._md5 is not None:
            digest, listed = hashlib.md5(content, usedforsecurity=False).hexdigest(), self._md5.get(name, "not in it")
            if digest != listed:
                raise InputError(
                    f"{self.where(name)}: its MD5 is {digest}, in the list {listed}; the checkpoint is damaged there "
                    "or is another one"
                )
        yield io.BytesIO(content)

    def _facts_of(self, name: str) -> ObjectFacts | None:
        try:
            return self._folder.facts(name)
        except DeniedObject as denied:
            self._denied[name] = denied
            return None

    def _identity(self, name: str) -> str:
        facts = self.facts[name]
        return "" if facts is None else f"{facts.bytes} {facts.version}"
