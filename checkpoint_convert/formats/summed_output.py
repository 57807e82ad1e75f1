"""Make a folder of files with the list of their MD5 sums beside it: OUTPUT and OUTPUT.md5.

Every conversion and every export is made this way. Its files are the parts of a resumable output
(``foundation/outputs/resumable_output.py``); tasks make them, several at a time. OUTPUT, OUTPUT.md5 and
OUTPUT.manifest.json appear when all parts are there.
"""

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpoint_convert.formats.source_files import SourceFiles
from checksums.folder_sums import files_below
from foundation.errors import InputError
from foundation.file_formats.md5_list import format_list
from foundation.outputs.digest import md5_text
from foundation.outputs.manifest import Recipe, source_of, versions_of
from foundation.outputs.output_parts import NewPart
from foundation.outputs.publish import sibling
from foundation.outputs.resumable_output import ResumableOutput, resumable_output
from foundation.outputs.shards import Shard
from foundation.progress import Meter, progress


@dataclass(frozen=True)
class FileTask:
    """Some files that are made together."""

    names: Sequence[str]
    """Paths of the files below the output."""
    bytes: int
    """Bytes of the files."""
    make: Callable[[ResumableOutput, Meter], Sequence[NewPart]]
    """Function that writes the files, or those that are missing. Several threads call it at the same time. Raises
    InputError if the source cannot be read."""


@dataclass(frozen=True)
class Product:
    """An output and everything that it depends on, known before a value is read."""

    stage: str
    """Name of the command."""
    options: Mapping[str, Any]
    """Every option that changes a byte; JSON values."""
    source: SourceFiles
    tasks: Sequence[FileTask]
    threads: int
    """Number of threads that make tasks at the same time."""
    packages: Sequence[str] = ()
    """Packages whose version affects the bytes."""
    further_inputs: Sequence[Path] = ()
    """Files beside the source whose content affects the output."""
    bytes_version: int = 1
    """Version of the command's bytes (``Recipe.bytes_version``)."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts for the manifest."""
    last: Callable[[Mapping[str, int]], Mapping[str, bytes]] = lambda sizes: {}
    """Function that returns the contents of the files that no task makes, by name, from the bytes of all others."""


@dataclass(frozen=True)
class Produced:
    """The result of making an output, or a shard of it."""

    bytes: int
    """Bytes of the output's files, or of the shard's share of them."""
    files: int
    """Number of the output's files, or of the shard's share of them."""
    resumed_files: int
    """Files that existed already, made by earlier calls or by the shards that are joined."""
    wall_s: float
    facts: Mapping[str, Any]
    """Facts in the manifest."""


def produce(product: Product, output: Path, *, shard: Shard | None = None, force: bool = False) -> Produced | None:
    """Make ``output``; return None if it is already there.

    ``shard`` is the share of the tasks to make, for a later call to join. Raises InputError for a source that is
    damaged or changes meanwhile, for another output under the name and for a disk that is too small; OSError for a full
    disk. After an error the same call goes on with the finished files.
    """
    started = time.monotonic()
    source, further_inputs = product.source, product.further_inputs
    inputs = [source.source(), *map(source_of, further_inputs)]
    versions = versions_of(*product.packages)
    recipe = Recipe(product.stage, product.options, inputs, versions, product.bytes_version)
    local = [*([source.folder] if isinstance(source.folder, Path) else []), *further_inputs]
    output_paths = [output, sibling(output, ".md5")]
    with resumable_output(output, recipe, paths=output_paths, inputs=local, shard=shard, force=force) as work:
        if work is None:
            return None
        _require_space(product.tasks, work)
        tasks = product.tasks if shard is None else shard.of(product.tasks)
        names = [name for task in tasks for name in task.names]
        resumed = len(names) - len(work.missing(names))
        _make(tasks, product, work)
        if shard is None:
            work.reload()
            if lost := work.missing(names):
                raise InputError(f"{work.path(lost[0])}: changed since it was written; run the command again")
            last = product.last({name: work.done[name].bytes for name in names})
            work.add([written(name, content, work) for name, content in last.items()])
            names = sorted([*names, *last], key=os.fsencode)
            listing = _listing(names, work)
            sums = work.new_path()
            sums.write_text(listing, encoding="utf-8", errors="surrogateescape")
            md5, (folder, md5_list) = md5_text(listing), output_paths
            outputs = {folder: (work.path(""), md5), md5_list: (sums, md5)}
            work.publish(outputs, [source.source_now(), *map(source_of, further_inputs)], product.facts)
        size = sum(work.done[name].bytes for name in names)
    return Produced(size, len(names), resumed, time.monotonic() - started, product.facts)


def written(name: str, content: bytes, work: ResumableOutput) -> NewPart:
    """Write a part. Raises OSError with the part's path, for example for a full disk."""
    path = work.new_path()
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(work.path(name))) from error
    return NewPart(name, path, hashlib.md5(content, usedforsecurity=False).hexdigest())


def small_files(names: Iterable[str], contents: Callable[[], Mapping[str, bytes]]) -> FileTask:
    """Return the task that writes the files ``names`` with the ``contents`` that the function returns."""
    return FileTask(
        [*names], 0, lambda work, meter: [written(name, content, work) for name, content in contents().items()]
    )


def _require_space(tasks: Sequence[FileTask], work: ResumableOutput) -> None:
    """Raise InputError if the disk has less room than the missing parts of all shards together need."""
    missing_bytes = sum(task.bytes for task in tasks if work.missing(task.names))
    disk = os.statvfs(work.folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and missing_bytes > free:
        raise InputError(
            f"{work.folder}: {missing_bytes:,} bytes are still to be written, and the disk has {free:,}; make "
            "room or choose another --output"
        )


def _make(tasks: Sequence[FileTask], product: Product, work: ResumableOutput) -> None:
    """Make the tasks, except those whose parts are all there."""
    waiting = iter(tasks)
    total, files = sum(task.bytes for task in tasks), sum(len(task.names) for task in tasks)

    def make_all() -> None:
        for task in waiting:  # threads share it
            if not work.missing(task.names):
                meter.done_before(task.bytes, len(task.names))
                continue
            parts = task.make(work, meter)
            with meter.doing("writing"):
                work.add(parts)
            meter(task.bytes, len(task.names))

    threads = product.threads
    with progress(product.stage, total, "bytes", files=files) as meter, ThreadPoolExecutor(threads) as pool:
        try:
            for done in as_completed([pool.submit(make_all) for _ in range(threads)]):
                done.result()
        finally:
            deque(waiting, maxlen=0)  # after an error no thread begins another task


def _listing(names: Sequence[str], work: ResumableOutput) -> str:
    """Return the list of sums. Raises InputError for a file that is none of the output's."""
    if strange_files := sorted(files_below(work.path("")).keys() - set(names)):
        raise InputError(
            f"{work.path(strange_files[0])}: no file of this output; move it away and run the command again"
        )
    return format_list({name: work.done[name].md5 for name in names})
