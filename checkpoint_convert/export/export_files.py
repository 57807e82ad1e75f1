"""Write the files of an export, several at a time in processes of their own: each is a piece of a resumable output.

OUTPUT/  OUTPUT.md5  OUTPUT.manifest.json
"""

import hashlib
import io
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from checkpoint_convert.formats.source_files import LocalFiles
from checksums.summed_output import add_small_pieces, outputs_of, publish_with_sums
from stage.child_processes import begin_worker
from stage.errors import InputError
from stage.outputs.manifest import Recipe, source_of, versions_of
from stage.outputs.resumable_output import NewPiece, ResumableOutput, resumable_output
from stage.progress import progress
from stage.sizes import require_workers

BYTES_PER_WORKER = 1 << 28
"""Less is written sooner than a process has loaded PyTorch."""


@dataclass(frozen=True)
class ExportFile:
    """One file to write."""

    name: str
    """Path below the output."""
    write: Callable[[IO[bytes]], None]
    """Writes it; raises InputError where the source cannot be read. It goes to another process by pickling, as a
    partial of a module's function does."""
    size: int
    """Bytes of its values."""


@dataclass(frozen=True)
class Export:
    """An output and everything that it depends on."""

    stage: str
    options: Mapping[str, Any]
    """Every option that changes a byte; JSON values."""
    source: Path
    files: Sequence[str]
    """Names of the source's files that are read."""
    others: Sequence[Path]
    """Other files whose content counts."""
    packages: Sequence[str]
    """Packages that change bytes."""
    output: Path


class HashingFile(io.BufferedWriter):
    """A file that is written from its beginning to its end, and its MD5."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "w"))
        self.md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: Any) -> int:
        self.md5.update(data)
        return super().write(data)


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
    source, inputs = LocalFiles(export.source), [export.source, *export.others]
    source.ask(export.files)
    read = [source.source(), *map(source_of, export.others)]
    recipe = Recipe(export.stage, export.options, read, versions_of(*export.packages))
    with resumable_output(export.output, recipe, made=outputs_of(export.output), inputs=inputs, force=force) as work:
        if work is None:
            return None
        _make_all(files, work, workers)
        small = small_files({file.name: work.done[file.name].bytes for file in files})
        add_small_pieces(small, work)
        names = [*(file.name for file in files), *small]
        publish_with_sums(names, work, lambda: [source.source_now(), *map(source_of, export.others)], {})
        return sum(work.done[name].bytes for name in names)


def _make_all(files: Sequence[ExportFile], work: ResumableOutput, workers: int) -> None:
    missing = set(work.missing(file.name for file in files))
    waiting = [file for file in files if file.name in missing]
    finished = [file for file in files if file.name not in missing]
    total = sum(file.size for file in files)
    with progress("export", total, "bytes", files=len(files)) as meter:
        meter.done_before(sum(file.size for file in finished), len(finished))
        for file, piece in _written(waiting, work, workers):
            work.add([piece])
            meter(file.size, 1)


def _written(files: Sequence[ExportFile], work: ResumableOutput, workers: int) -> Iterator[tuple[ExportFile, NewPiece]]:
    """Yield the files as they are finished."""
    paths = {file.name: work.new_path() for file in files}
    workers = min(workers, len(files), sum(file.size for file in files) // BYTES_PER_WORKER)
    if workers <= 1:
        for file in files:
            yield file, NewPiece(file.name, paths[file.name], _write(file, paths[file.name]))
        return
    context = multiprocessing.get_context("spawn")  # threads of TensorStore and PyTorch do not survive a fork
    with ProcessPoolExecutor(workers, context, initializer=begin_worker) as pool:
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
    """Write one file and return its MD5. Raises OSError, which names the file, as where the disk is full."""
    try:
        with HashingFile(path) as writer:
            file.write(writer)
    except (OSError, RuntimeError) as error:
        reason = error.__context__ if isinstance(error, RuntimeError) else error  # torch.save raises its own upon it
        if not isinstance(reason, OSError) or reason.filename is not None:
            raise
        raise OSError(reason.errno, reason.strerror, str(path)) from error
    return writer.md5.hexdigest()
