"""Write the files of an export, several at a time: each is a piece of a resumable output.

OUTPUT/  OUTPUT.md5  OUTPUT.manifest.json
"""

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from checkpoint_convert.formats.source_files import LocalFiles
from checksums.summed_output import outputs_of, publish_with_sums
from stage.outputs.manifest import Recipe, source_of, versions_of
from stage.outputs.resumable_output import NewPiece, resumable_output
from stage.progress import progress
from stage.sizes import require_workers


@dataclass(frozen=True)
class ExportFile:
    """One file to write."""

    name: str
    """Path below the output."""
    write: Callable[[IO[bytes]], None]
    """Function that writes the file; raises InputError if the source cannot be read. Several threads call it at the
    same time."""
    size: int
    """Bytes of its values."""


@dataclass(frozen=True)
class Export:
    """An output and its dependencies."""

    stage: str
    options: Mapping[str, Any]
    """Every option that changes a byte; JSON values."""
    source: Path
    read: Sequence[str]
    """Names of the source's files that are read."""
    others: Sequence[Path]
    """Other files whose content affects the output."""
    packages: Sequence[str]
    """Packages whose version affects the bytes."""
    files: Sequence[ExportFile]
    small_files: Callable[[Mapping[str, int]], Mapping[str, bytes]]
    """Function that returns the contents of all other files, by name, from the bytes of ``files``."""


class HashingFile(io.BufferedWriter):
    """A file that is written from its beginning to its end, with its MD5."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "w"))
        self.md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: Any) -> int:
        self.md5.update(data)
        return super().write(data)


def run_export(export: Export, output: Path, *, workers: int, force: bool) -> int | None:
    """Make ``output``; return the bytes written, None if it is already there.

    Raises InputError for a source that is damaged or changes meanwhile, and for other work under the output's name;
    OSError for a full disk. After either error the same command goes on with the finished files.
    """
    require_workers(workers)
    source = LocalFiles(export.source)
    source.ask(export.read)
    read = [source.source(), *map(source_of, export.others)]
    recipe = Recipe(export.stage, export.options, read, versions_of(*export.packages))
    inputs = [export.source, *export.others]
    with resumable_output(output, recipe, made=outputs_of(output), inputs=inputs, force=force) as work:
        if work is None:
            return None
        names = [file.name for file in export.files]
        missing = set(work.missing(names))
        waiting = [file for file in export.files if file.name in missing]
        total, left = (sum(file.size for file in files) for files in (export.files, waiting))
        with progress("export", total, "bytes", files=len(names)) as meter, ThreadPoolExecutor(workers) as pool:
            meter.done_before(total - left, len(names) - len(waiting))

            def make(file: ExportFile) -> None:
                work.add([_written(file, work.new_path())])
                meter(file.size, 1)

            try:
                for done in as_completed([pool.submit(make, file) for file in waiting]):
                    done.result()
            finally:
                pool.shutdown(cancel_futures=True)
        small = export.small_files({name: work.done[name].bytes for name in names})
        names = publish_with_sums(
            names, small, work, lambda: [source.source_now(), *map(source_of, export.others)], facts={}
        )
        return sum(work.done[name].bytes for name in names)


def _written(file: ExportFile, path: Path) -> NewPiece:
    """Write one file. Raises OSError with the file's name, for example for a full disk."""
    try:
        with HashingFile(path) as writer:
            file.write(writer)
    except (OSError, RuntimeError) as error:
        reason = error.__context__ if isinstance(error, RuntimeError) else error  # torch.save raises its own upon it
        if not isinstance(reason, OSError) or reason.filename is not None:
            raise
        raise OSError(reason.errno, reason.strerror, str(path)) from error
    return NewPiece(file.name, path, writer.md5.hexdigest())
