"""A conversion that is not finished: the folder OUTPUT.partial, which several processes may fill and one publishes.

purpose.json                    what is being made of what; anything else is not gone on with
files/                          what becomes OUTPUT; a chunk has its name only once it is whole and on the disk
WRITER.journal                  the files that one process wrote, WRITER being "whole" or "shard-3-of-16"
WRITER.lock, WRITER.lock.owner  held while that process works
NAME.md5, NAME.manifest.json    last of all; they follow ``files`` to their places
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_convert.conversion.output_records import sums_path
from checkpoint_convert.conversion.resuming.journal import SUFFIX, Journal, read_journals, still_written
from stage.claims.claim_file import Claim
from stage.errors import InputError
from stage.lock import gone, only_one_in
from stage.manifest import manifest_path
from stage.publish import own_partial_path, partial_path, remove_left_partials, replace_folder, sync_to_disk, write_text
from stage.task_shard import TaskShard

PURPOSE, FILES, WHOLE = "purpose.json", "files", "whole"
LOCK = ".lock"
BUSY = "another conversion is writing it; wait for it to end"


@dataclass(frozen=True)
class UnfinishedConversion:
    """The folder, while this process works in it."""

    folder: Path
    journal: Journal
    claim: Claim

    @property
    def files(self) -> Path:
        return self.folder / FILES


def writer_of(shard: TaskShard | None) -> str:
    return WHOLE if shard is None else f"shard-{shard.index}-of-{shard.count}"


@contextmanager
def unfinished(output: Path, purpose: Mapping[str, Any], shard: TaskShard | None) -> Iterator[UnfinishedConversion]:
    """Work in OUTPUT.partial, with what earlier processes wrote there for the same ``purpose``.

    One process makes it whole, or one each of its shards. Raises InputError where others are at work that exclude this
    one, or the folder is not ours. A block that fails leaves all that was written, or nothing where that is nothing.
    """
    folder, writer = _opened(output, purpose), writer_of(shard)
    with ExitStack() as stack:
        try:
            claim = stack.enter_context(only_one_in(folder, BUSY, name=writer + LOCK))
            _exclude(folder, writer, stack)
            (folder / FILES).mkdir(exist_ok=True)
            journal = Journal(folder / (writer + SUFFIX), still_written(folder / FILES, read_journals(folder)))
        except FileNotFoundError:
            raise gone(folder) from None
        try:
            yield UnfinishedConversion(folder, journal, claim)
        finally:
            journal.close()
            if not journal.written and not any(_others(folder, writer, SUFFIX)):
                shutil.rmtree(folder, ignore_errors=True)


def _exclude(folder: Path, writer: str, stack: ExitStack) -> None:
    """The whole keeps all shards out while it works; a shard only sees that nobody makes the whole."""
    if writer == WHOLE:
        for name in _others(folder, writer, LOCK):
            stack.enter_context(only_one_in(folder, BUSY, name=name))
    else:
        with only_one_in(folder, BUSY, name=WHOLE + LOCK):
            pass


def _others(folder: Path, writer: str, suffix: str) -> list[str]:
    """What other writers left that ends so."""
    with suppress(FileNotFoundError):
        return sorted(path.name for path in folder.glob(f"*{suffix}") if path.name != writer + suffix)
    return []


def _opened(output: Path, purpose: Mapping[str, Any]) -> Path:
    """OUTPUT.partial of this purpose: as it is, or a new one, which appears whole."""
    output.parent.mkdir(parents=True, exist_ok=True)
    remove_left_partials(output)
    folder, text = partial_path(output), json.dumps(purpose, sort_keys=True)
    while True:
        if not os.path.lexists(folder):
            _create(folder, output, text)
        found = _purpose_of(folder)
        if found == text:
            return folder
        if found is None:
            raise InputError(f"{folder}: not made by this command; remove it or choose another --output")
        _remove_if_nobody_works_there(folder, output)


def _create(folder: Path, output: Path, purpose: str) -> None:
    own = own_partial_path(output)
    own.mkdir()
    try:
        write_text(own / PURPOSE, purpose)
        own.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process was faster
            raise
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _purpose_of(folder: Path) -> str | None:
    try:
        return (folder / PURPOSE).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def _remove_if_nobody_works_there(folder: Path, output: Path) -> None:
    """It was begun for something else: another source, or one that has changed, or other options."""
    with ExitStack() as stack:
        for name in {WHOLE + LOCK, *_others(folder, "", LOCK)}:
            stack.enter_context(only_one_in(folder, f"it makes something else; {BUSY}", name=name))
        aside = own_partial_path(output)
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def publish(work: UnfinishedConversion, output: Path) -> None:
    """Give the files, the list of sums and the manifest, which lie in the folder, their places; the manifest last.

    What has the output's name is moved aside and removed when the new one is there.
    """
    sync_to_disk(work.folder)
    work.claim.require_held()
    replace_folder(work.files, output)
    _finish(work.folder, output)


def finish_published(output: Path) -> None:
    """Do what is left to do where a process was killed after its folder had got its place."""
    folder = partial_path(output)
    if manifest_path(folder / output.name).exists() and not (folder / FILES).exists() and output.exists():
        with only_one_in(folder, BUSY, name=WHOLE + LOCK):
            if manifest_path(folder / output.name).exists() and not (folder / FILES).exists():
                _finish(folder, output)


def _finish(folder: Path, output: Path) -> None:
    sums = sums_path(output)
    with suppress(FileNotFoundError):
        os.replace(folder / sums.name, sums)
    os.replace(manifest_path(folder / output.name), manifest_path(output))
    sync_to_disk(output.parent)
    aside = own_partial_path(output)
    folder.rename(aside)  # whoever comes late finds nothing, rather than adds to what is being removed
    shutil.rmtree(aside, ignore_errors=True)
