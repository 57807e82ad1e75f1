"""Write the files of an export, several at a time in processes of their own: each is a piece of a resumable output.

OUTPUT/  OUTPUT.md5  OUTPUT.manifest.json
"""

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checkpoint_convert.export.tensor_source import TensorSource
from checksums.md5_list import files_below, format_list
from stage.child_processes import end_with_parent
from stage.errors import InputError
from stage.outputs.digest import md5_text
from stage.outputs.manifest import Recipe, source_of, versions_of
from stage.outputs.publish import beside
from stage.outputs.resumable_output import NewPiece, ResumableOutput, resumable_output
from stage.progress import progress
from stage.sizes import require_workers

BYTES_PER_WORKER = 1 << 28
"""Less is written sooner than a process has loaded PyTorch."""


class ExportFile(Protocol):
    """One file to write. It goes to another process by pickling: it holds names and paths, and opens what it reads."""

    @property
    def name(self) -> str:
        """Path below the output."""
        ...

    @property
    def bytes(self) -> int:
        """Size of its values."""
        ...

    def write(self, file: "HashingFile") -> None:
        """Write it. Raises InputError where the source cannot be read."""
        ...


@dataclass(frozen=True)
class Export:
    """An output and everything that it depends on."""

    stage: str
    options: Mapping[str, Any]
    """Every option that changes a byte; JSON values."""
    inputs: Sequence[Path]
    """The source, and other files whose content counts."""
    packages: Sequence[str]
    """Packages that change bytes."""
    output: Path


class HashingFile:
    """A file that is written from its beginning to its end, and its MD5."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("wb", buffering=0)
        self._digest = hashlib.md5(usedforsecurity=False)
        self.failed: OSError | None = None
        """Error of a write: ``torch.save`` goes on to close its archive, and raises something else."""

    def write(self, data: Any) -> int:
        """Append bytes. Raises OSError, which names the file, as when the disk is full."""
        view, written = memoryview(data), 0
        if not view.nbytes:
            return 0
        view = view.cast("B")
        try:
            while written < len(view):
                written += self._file.write(view[written:]) or 0
        except OSError as error:
            self.failed = OSError(error.errno, error.strerror, str(self._path))
            raise self.failed from error
        self._digest.update(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing, for ``torch.save``: every write goes to the file at once."""

    def finish(self) -> str:
        """Close the file and return its MD5."""
        self._file.close()
        return self._digest.hexdigest()


def run_export(
    export: Export,
    files: Sequence[ExportFile],
    small_files: Callable[[Mapping[str, int]], Mapping[str, bytes]],
    *,
    workers: int,
    force: bool,
) -> int | None:
    """Make the output; return the bytes written, None where it is there already.

    ``small_files`` returns the contents of all other files, by name, from the sizes of ``files``. Raises InputError for
    a source that is damaged or changes meanwhile, and for other work under the output's name; OSError where the disk
    is full. After either the same command goes on with what is finished.
    """
    require_workers(workers)
    recipe = Recipe(export.stage, export.options, _sources(export), versions_of(*export.packages))
    sums = beside(export.output, ".md5")
    with resumable_output(export.output, recipe, made=[export.output, sums], inputs=export.inputs, force=force) as work:
        if work is None:
            return None
        _make_all(files, work, workers)
        small = small_files({file.name: work.done[file.name].bytes for file in files})
        work.add([_small_piece(name, content, work) for name, content in small.items()])
        names = sorted([*(file.name for file in files), *small], key=os.fsencode)
        _require_these(work, names)
        listing = format_list({name: work.done[name].md5 for name in names})
        list_path, whole = work.new_path(), md5_text(listing)
        list_path.write_text(listing, encoding="utf-8", errors="surrogateescape")
        outputs = {export.output: (work.folder / "pieces", whole), sums: (list_path, whole)}
        work.publish(outputs, _sources(export), {})
        return sum(work.done[name].bytes for name in names)


def tell_left_out(source: TensorSource) -> None:
    """Print the arrays of a checkpoint that are in no export, as they belong to no parameter of the model."""
    names = source.left_out()
    if names:
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        print(f"{source.folder}: left out, for the model has no such array: {names[0]}{more}", file=sys.stderr)


def _sources(export: Export) -> list[Any]:
    return [source_of(path) for path in export.inputs]


def _small_piece(name: str, content: bytes, work: ResumableOutput) -> NewPiece:
    path = work.new_path()
    path.write_bytes(content)
    return NewPiece(name, path, hashlib.md5(content, usedforsecurity=False).hexdigest())


def _require_these(work: ResumableOutput, names: Sequence[str]) -> None:
    """Raise InputError unless all pieces are on the disk as they were written, and nothing besides."""
    work.reload()
    if lost := work.missing(names):
        raise InputError(f"{work.path(lost[0])}: changed or removed after it was written; run the command again")
    other = next(iter(files_below(work.folder / "pieces").keys() - set(names)), None)
    if other is not None:
        raise InputError(f"{work.path(other)}: not written by this command; remove it and run the command again")


def _make_all(files: Sequence[ExportFile], work: ResumableOutput, workers: int) -> None:
    missing = set(work.missing(file.name for file in files))
    waiting = [file for file in files if file.name in missing]
    finished = [file for file in files if file.name not in missing]
    total = sum(file.bytes for file in files)
    with progress("export", total, "bytes", files=len(files)) as meter:
        meter.done_before(sum(file.bytes for file in finished), len(finished))
        for file, piece in _written(waiting, work, workers):
            work.add([piece])
            meter(file.bytes, 1)


def _written(files: Sequence[ExportFile], work: ResumableOutput, workers: int) -> Iterator[tuple[ExportFile, NewPiece]]:
    """Yield the files as they are finished."""
    paths = {file.name: work.new_path() for file in files}
    workers = min(workers, len(files), sum(file.bytes for file in files) // BYTES_PER_WORKER)
    if workers <= 1:
        for file in files:
            yield file, NewPiece(file.name, paths[file.name], _write(file, paths[file.name]))
        return
    context = multiprocessing.get_context("spawn")  # threads of TensorStore and PyTorch do not survive a fork
    with ProcessPoolExecutor(workers, context, initializer=end_with_parent) as pool:
        waiting = {pool.submit(_write, file, paths[file.name]): file for file in files}
        try:
            for done in as_completed(waiting):
                file = waiting[done]
                yield file, NewPiece(file.name, paths[file.name], done.result())
        except BrokenProcessPool as error:
            raise InputError(
                "a worker was killed, perhaps for want of memory; lower --workers and run the command again, it goes "
                "on from here"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _write(file: ExportFile, path: Path) -> str:
    """Write one file and return its MD5."""
    writer = HashingFile(path)
    try:
        file.write(writer)
    except RuntimeError as error:  # torch.save's, of an archive that could not be written
        if writer.failed is not None:
            raise writer.failed from error
        raise
    return writer.finish()
