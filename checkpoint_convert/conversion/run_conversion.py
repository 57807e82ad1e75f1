"""Run a conversion of either direction, or one of its shards, to its end: go on where a killed one was, check, publish.

OUTPUT.partial/                             while it is written (``resuming/unfinished.py``)
OUTPUT/, OUTPUT.md5, OUTPUT.manifest.json   when it is finished
"""

import errno
import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from checkpoint_convert.conversion.block_choice import ONCE, bytes_to_read_once, limit_text
from checkpoint_convert.conversion.output_records import already_made, sums_path
from checkpoint_convert.conversion.resuming.journal import still_written
from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from checkpoint_convert.conversion.resuming.unfinished import (
    UnfinishedConversion,
    finish_published,
    publish,
    unfinished,
)
from checkpoint_convert.conversion.streaming import Job, run_jobs
from checkpoint_convert.conversion.workspace import FileWriter
from checksums.md5_list import files_below, format_list
from stage.digest import md5_text
from stage.errors import InputError
from stage.limits.replacing import require_apart
from stage.limits.sizes import require_workers
from stage.manifest import Record, is_current, read_manifest, record_of, require_intact, write_manifest
from stage.publish import PARTIAL, sync_all, write_text
from stage.task_shard import TaskShard

PACKAGES = ("tensorstore", "numpy", "ml-dtypes")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Conversion(Protocol):
    """One direction."""

    @property
    def stage(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Any]:
        """What the result depends on besides the source."""
        ...

    def arrays(self) -> Iterable[str]:
        """Names of the input's arrays that are read."""
        ...

    def jobs(self, files: SourceFiles, workers: int, memory_limit: int) -> Sequence[Job]: ...

    def small_files(self) -> Mapping[str, bytes]:
        """By name: the arrays' metadata, and what is no array."""
        ...


@dataclass(frozen=True)
class Converted:
    bytes: int
    """Of the output, or of the shard's part of it."""
    files: int
    resumed_files: int
    """Of an earlier, killed conversion, or of the shards that are joined."""
    wall_s: float


def run_conversion(
    conversion: Conversion,
    source: Path,
    output: Path,
    *,
    workers: int,
    memory_limit: int,
    force: bool,
    shard: TaskShard | None = None,
    at_the_end: Callable[[], None] = lambda: None,
) -> Converted | None:
    """Make ``output`` from ``source``; None when it is there already. ``memory_limit`` is in bytes; what
    ``at_the_end`` raises, when all is written, ends the conversion unpublished.

    With ``shard``: write that share's files and publish nothing; where ``output`` is what they would become, nothing is
    written, whatever ``force`` says. Without it, what shards have written is joined, what they have not is written, and
    all is published. Raises InputError for a source that is not whole or changes meanwhile, different work under the
    output's name, or an output that is, holds or lies in the source.
    """
    started = time.monotonic()
    require_workers(workers)
    require_apart(output, [source])
    require_intact(source)
    stage, options = conversion.stage, conversion.options

    def there_already() -> bool:
        # A shard replaces nothing, whatever force says: one that comes after its join finds its work published.
        anew = force and (shard is None or not is_current(output, stage=stage, options=options, inputs=[source]))
        return already_made(source, output, stage=stage, options=options, force=anew)

    finish_published(output)
    if there_already():
        return None
    files = SourceFiles(source, conversion.arrays())
    jobs = conversion.jobs(files, workers, memory_limit)
    _warn_of_reading_twice(jobs)
    # Wherever the source lies: no two have the same times of change, to the nanosecond, of all their files.
    purpose = {"stage": stage, "options": dict(options), "as of": files.fingerprint()}
    with unfinished(output, purpose, shard) as work, _full_disk_told():
        if there_already():
            return None  # by the one that we waited for
        resumed = work.journal.resumed
        for job in jobs:
            for target in job.targets:
                (work.files / target.name).mkdir(exist_ok=True)
        if shard is not None:
            names = run_jobs(jobs, work.files, work.journal, shard=shard)
            files.require_unchanged()
            at_the_end()
            work.journal.sync()
            return Converted(_bytes_of(work, names), len(names), resumed, time.monotonic() - started)
        with ThreadPoolExecutor(1) as beside:  # importing PyTorch takes a second or two
            small_files = beside.submit(conversion.small_files)
            names = run_jobs(jobs, work.files, work.journal)
        listing = _verified_listing(work, names, _written(work.files, small_files.result()))
        read = _record_of_source(source)
        files.require_unchanged()
        at_the_end()
        total = _write_records(conversion, read, output, work, listing, started)
        publish(work, output)
    return Converted(total, listing.count("\n"), resumed, time.monotonic() - started)


def _bytes_of(work: UnfinishedConversion, names: Iterable[str]) -> int:
    return sum(work.journal.written[name].state.bytes for name in names)


def _warn_of_reading_twice(jobs: Sequence[Job]) -> None:
    total = sum(math.prod(job.cut.sizes[axis] for axis in job.cut.target.axes) * job.cut.passes for job in jobs)
    passes = total / sum(math.prod(job.cut.sizes[axis] for axis in job.cut.target.axes) for job in jobs)
    if passes > ONCE:
        enough = max(bytes_to_read_once(job.cut.sizes, job.cut.source, job.cut.target) for job in jobs)
        print(
            f"warning: within this --memory-limit the input is read {passes:.1f} times; {limit_text(enough)} or more "
            "reads it once",
            file=sys.stderr,
        )


@contextmanager
def _full_disk_told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        where = f"{error.filename}: {error.strerror}"
        raise InputError(f"{where}; make room and run the command again, it goes on from here") from error


def _written(folder: Path, files: Mapping[str, bytes]) -> dict[str, str]:
    """Write small files; gives their MD5 by name."""
    with FileWriter(folder, lambda *_: None) as writer:
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            writer.write(name, np.frombuffer(content, np.uint8))
    return {name: hashlib.md5(content, usedforsecurity=False).hexdigest() for name, content in files.items()}


def _verified_listing(work: UnfinishedConversion, names: Sequence[str], small_files: Mapping[str, str]) -> str:
    """The md5sum-style list of the output: its chunks ``names`` and small files.

    Every chunk is there as its journal says, whoever wrote it, and nothing else is. Raises InputError otherwise.
    """
    written = still_written(work.files, {name: work.journal.written[name] for name in names})
    lost = next((name for name in names if name not in written), None)
    if lost is not None:
        raise InputError(f"{work.files / lost}: changed or removed after it was written; run the command again")
    digests = {**{name: one.md5 for name, one in written.items()}, **small_files}
    for name in files_below(work.files):
        if name.endswith(PARTIAL):  # half of a file, of a process that was killed
            (work.files / name).unlink()
        elif name not in digests:
            raise InputError(f"{work.files / name}: no file of this conversion; move it away and run the command again")
    sync_all({(work.files / name).parent for name in digests} | {work.files})
    return format_list(dict(sorted(digests.items(), key=lambda item: os.fsencode(item[0]))))


def _record_of_source(source: Path) -> Record:
    """To be made before the source is found unchanged, so that it is the record of what was read."""
    made_by = read_manifest(source)
    return record_of(source, str(source), made_by.outputs[0].md5 if made_by else None)


def _write_records(
    conversion: Conversion, read: Record, output: Path, work: UnfinishedConversion, listing: str, started: float
) -> int:
    """List and manifest, in the folder of the unfinished conversion; returns the bytes of the output's files."""
    write_text(work.folder / sums_path(output).name, listing)
    written = record_of(work.files, output.name, md5_text(listing))
    write_manifest(
        work.folder / output.name,
        stage=conversion.stage,
        options=conversion.options,
        inputs=[read],
        outputs=[written],
        packages=PACKAGES,
        started=started,
    )
    return written.bytes
