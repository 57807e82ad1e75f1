"""Write the files of an export: several at a time in processes of their own, each noted once it is on the disk.

    OUTPUT.partial/           while it is written; after a kill or a full disk the same command goes on from there
    OUTPUT.partial/.export/   what is made of what, and for each finished file its MD5
    OUTPUT/, OUTPUT.md5, OUTPUT.manifest.json

A file that an earlier call has finished is read again and made again if it is not what it was noted to be.
"""

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checkpoint_convert.conversion.output_records import already_made, write_sums_and_manifest
from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from checksums.md5_list import files_below, format_list
from stage.child_processes import end_with_parent
from stage.claims.claim_file import Claim
from stage.digest import md5_file
from stage.errors import InputError
from stage.limits.bounded_reading import DAMAGED, read_small_json
from stage.limits.replacing import require_apart, require_replaceable
from stage.limits.sizes import require_workers
from stage.lock import only_one_in
from stage.manifest import read_manifest
from stage.progress import progress
from stage.publish import (
    own_partial_path,
    partial_path,
    remove_left_partials,
    replace_folder,
    sync_folder,
    sync_handle,
    write_text,
)

NOTES = ".export"
PURPOSE = "purpose.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BYTES_PER_WORKER = 1 << 28
"""Less is written sooner than a process has loaded PyTorch."""


class Unfinished(InputError):
    """An export that ended early and kept what it wrote: the same command goes on from there."""


class ExportFile(Protocol):
    """One file to write. It goes to another process by pickling: it holds names and paths, and opens what it reads."""

    @property
    def name(self) -> str:
        """Below the output; it may lie in a folder."""
        ...

    @property
    def bytes(self) -> int:
        """About its size."""
        ...

    def write(self, file: "HashingFile") -> None:
        """Raises InputError where the source cannot be read."""
        ...


@dataclass(frozen=True)
class Export:
    """What is made of what."""

    stage: str
    options: Mapping[str, Any]
    """What the result depends on besides the source: JSON values."""
    source: Path
    output: Path
    packages: Sequence[str]
    """Whose versions the manifest names."""


@dataclass(frozen=True)
class Made:
    """A finished file."""

    md5: str
    bytes: int


class HashingFile:
    """A file that is written from its beginning to its end, and its MD5."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("wb")
        self._digest = hashlib.md5(usedforsecurity=False)
        self._bytes = 0
        self.failed: OSError | None = None
        """What a write raised: ``torch.save`` goes on to close its archive, and raises something else."""

    def write(self, data: Any) -> int:
        """Append bytes. Raises OSError, which names the file, as when the disk is full."""
        try:
            self._file.write(data)
        except OSError as error:
            self.failed = OSError(error.errno, error.strerror, str(self._path))
            raise self.failed from error
        self._digest.update(data)
        size = memoryview(data).nbytes
        self._bytes += size
        return size

    def flush(self) -> None:
        self._file.flush()

    def finish(self) -> Made:
        """Bring it to the disk."""
        self.flush()
        sync_handle(self._file.fileno(), self._path)
        return Made(self._digest.hexdigest(), self._bytes)

    def close(self) -> None:
        with suppress(OSError):  # of a full disk, which write has reported
            self._file.close()


def run_export(
    export: Export,
    files: Sequence[ExportFile],
    write_small_files: Callable[[Path, Mapping[str, Made]], None],
    *,
    workers: int,
    force: bool,
) -> int | None:
    """Make the output; returns the bytes written, None where it is there already.

    ``write_small_files(folder, made)`` writes what is left once all others are there. Raises InputError for a source
    that is damaged or changes meanwhile, a full disk, and for other work under the output's name.
    """
    started = time.monotonic()
    output = export.output
    require_workers(workers)
    require_apart(output, [export.source])
    if _is_made(export, force=force):
        return None
    output.parent.mkdir(parents=True, exist_ok=True)
    remove_left_partials(output)
    source = SourceFiles(export.source, sorted(path.name for path in export.source.iterdir()))
    # Wherever the source lies: no two have the same times of change, to the nanosecond, of all their files.
    purpose = {"stage": export.stage, "options": dict(export.options), "as of": source.fingerprint()}
    with _lock(output) as claim:
        if _is_made(export, force=force):
            return None  # by the one that we waited for
        with _partial(output, purpose) as partial:
            made = _make_all(files, partial, workers)
            write_small_files(partial, made)
            source.require_unchanged()
            sync_folder(partial)
            claim.require_held()
            total = _publish(export, partial, made, started)
    return total


def _publish(export: Export, partial: Path, made: Mapping[str, Made], started: float) -> int:
    """Give the whole folder its name, without notes; returns its bytes."""
    output = export.output
    whole = own_partial_path(output)
    partial.rename(whole)
    try:
        _remove_notes(whole / NOTES)
        total = write_sums_and_manifest(
            output,
            whole,
            _listing(whole, made),
            stage=export.stage,
            options=export.options,
            source=export.source,
            source_made_by=read_manifest(export.source),
            packages=export.packages,
            started=started,
        )
        replace_folder(whole, output)
    finally:
        shutil.rmtree(whole, ignore_errors=True)
    return total


def _remove_notes(notes: Path) -> None:
    """Raises OSError with the whole path, which ``rmtree`` does not."""
    try:
        shutil.rmtree(notes)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(notes)) from error


def _is_made(export: Export, *, force: bool) -> bool:
    """Raises InputError where the output is something that may not be replaced."""
    if force:
        require_replaceable(export.output, stage=export.stage, inputs=[export.source])
        return False
    return already_made(export.source, export.output, stage=export.stage, options=export.options, force=False)


@contextmanager
def _lock(output: Path) -> Iterator[Claim]:
    name = f"{output.name}.lock"
    with only_one_in(output.parent, "wait for it to end", name=name) as claim:
        try:
            yield claim
        finally:
            (output.parent / name).unlink(missing_ok=True)


@contextmanager
def _partial(output: Path, purpose: Mapping[str, Any]) -> Iterator[Path]:
    """The partial folder, that of a killed call if it was to make the same.

    It stays where an error leaves finished files, unless that was the source's fault. Raises InputError where something
    of the user's has its name.
    """
    partial = partial_path(output)
    text = json.dumps(purpose, sort_keys=True)
    noted = partial / NOTES / PURPOSE
    if os.path.lexists(partial) and not _is_ours(partial):
        raise InputError(f"{partial}: not made by this command; remove it or choose another --output")
    if not noted.is_file() or noted.read_text() != text:
        _remove(partial, output)
        (partial / NOTES).mkdir(parents=True)
        write_text(noted, text)
    try:
        yield partial
    except BaseException as error:
        is_the_sources = isinstance(error, InputError) and not isinstance(error, Unfinished)
        if is_the_sources or not any(path.is_file() and path != noted for path in (partial / NOTES).rglob("*")):
            _remove(partial, output)
        raise


def _is_ours(partial: Path) -> bool:
    """Whether an export has made the folder: it has notes, or was ended before there was anything in it."""
    if partial.is_symlink() or not partial.is_dir():
        return False
    return (partial / NOTES).is_dir() or not any(partial.iterdir())


def _remove(partial: Path, output: Path) -> None:
    """Under a name that only we give, so that a kill meanwhile leaves nothing that could be a user's."""
    with suppress(FileNotFoundError):
        aside = own_partial_path(output)
        partial.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _make_all(files: Sequence[ExportFile], partial: Path, workers: int) -> dict[str, Made]:
    total = sum(file.bytes for file in files)
    workers = max(1, min(workers, len(files), total // BYTES_PER_WORKER))
    made: dict[str, Made] = {}
    with progress("export", total, "bytes", files=len(files)) as advance:
        if workers == 1:
            for file in files:
                made[file.name] = _make(file, partial)
                advance(file.bytes, 1)
            return made
        context = multiprocessing.get_context("spawn")  # threads of TensorStore and PyTorch do not survive a fork
        with ProcessPoolExecutor(workers, context, initializer=end_with_parent) as pool:
            waiting = {pool.submit(_make, file, partial): file for file in files}
            try:
                for done in as_completed(waiting):
                    made[waiting[done].name] = done.result()
                    advance(waiting[done].bytes, 1)
            except BrokenProcessPool as error:
                raise Unfinished(
                    "a worker was killed, perhaps for want of memory; lower --workers and run the command again, it "
                    "goes on from here"
                ) from error
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return made


def _make(file: ExportFile, partial: Path) -> Made:
    """Write one file, or find it finished."""
    note, path = partial / NOTES / f"{file.name}.json", partial / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    finished = _finished(note, path)
    if finished is not None:
        return finished
    try:
        writer = HashingFile(path)
        try:
            _write(file, writer)
            made = writer.finish()
        finally:
            writer.close()
        write_text(note, json.dumps(made.__dict__))
    except OSError as error:
        if error.errno not in FULL:
            raise
        path.unlink(missing_ok=True)
        where = f"{error.filename or path}: {error.strerror}"
        raise Unfinished(f"{where}; make room and run the command again, it goes on from here") from error
    return made


def _write(file: ExportFile, writer: HashingFile) -> None:
    try:
        file.write(writer)
    except RuntimeError as error:
        if writer.failed is not None:
            raise writer.failed from error
        raise


def _finished(note: Path, path: Path) -> Made | None:
    """What an earlier call noted of a file, if it is still so."""
    try:
        made = Made(**read_small_json(note))
        return made if path.stat().st_size == made.bytes and md5_file(path) == made.md5 else None
    except (FileNotFoundError, InputError, *DAMAGED):
        return None


def _listing(partial: Path, made: Mapping[str, Made]) -> str:
    digests = {name: file.md5 for name, file in made.items()}
    digests.update({name: md5_file(partial / name) for name in files_below(partial) if name not in made})
    return format_list(dict(sorted(digests.items(), key=lambda item: os.fsencode(item[0]))))
