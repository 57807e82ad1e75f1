"""Run a conversion of either direction, or a shard of one, to its end.

The output is a resumable one (``stage/outputs/resumable_output.py``) whose pieces are the output's files: every chunk,
and the small files beside them. OUTPUT, OUTPUT.md5 and OUTPUT.manifest.json appear when all of them are there.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_convert.conversion.block_choice import ONCE, bytes_to_read_once, limit_text
from checkpoint_convert.conversion.block_conversion import FILES, BlockTask, Job, run_tasks, tasks_of
from checkpoint_convert.conversion.chunk_writer import ChunkWriter, md5_of
from checkpoint_convert.conversion.machine_memory import require_memory
from checkpoint_convert.conversion.source_files import SourceFiles
from checksums.md5_list import format_list
from stage.errors import InputError
from stage.outputs.digest import md5_text
from stage.outputs.manifest import Recipe, files_below, versions_of
from stage.outputs.publish import beside
from stage.outputs.resumable_output import ResumableOutput, resumable_output
from stage.outputs.shards import Shard


@dataclass(frozen=True)
class Conversion:
    """One conversion, planned: all that is known before a value is read."""

    stage: str
    """The command."""
    options: Mapping[str, Any]
    """Every option that changes a byte."""
    source: SourceFiles
    packages: Sequence[str]
    """Packages that write bytes of the output."""
    jobs: Sequence[Job]
    small_files: Callable[[], Mapping[str, bytes]]
    """Makes, by name, the arrays' metadata and what is no array; it is called beside the conversion."""
    facts: Mapping[str, Any]
    """For the manifest."""


@dataclass(frozen=True)
class Converted:
    """The result of a conversion, or of one of its shards."""

    bytes: int
    """Bytes of the output's files, or of the shard's share of them."""
    files: int
    """Number of these files."""
    resumed_files: int
    """Files that were there already, made by earlier calls or by the shards that are joined."""
    wall_s: float
    facts: Mapping[str, Any]
    """As in the manifest; ``zero_chunks`` is the number of input chunks without a file, which were taken as zeros."""


def run_conversion(
    conversion: Conversion,
    output: Path,
    *,
    inputs: Sequence[Path] = (),
    shard: Shard | None = None,
    force: bool = False,
) -> Converted | None:
    """Make ``output``, or with ``shard`` that share of its pieces; None where it is there already.

    ``inputs``: local files and folders that must not be overwritten. Raises InputError for a source that is damaged or
    changes meanwhile, another output under the name, and a disk or memory that is too small.
    """
    started = time.monotonic()
    _warn_of_reading_twice(conversion.jobs)
    require_memory(max(job.blocks.memory_bytes for job in conversion.jobs))
    recipe = Recipe(
        conversion.stage,
        conversion.options,
        [conversion.source.source()],
        versions_of(*conversion.packages),
    )
    facts = {**conversion.facts, "zero_chunks": sum(job.source.zero_chunks for job in conversion.jobs)}
    made = [output, sums_path(output)]
    with resumable_output(output, recipe, made=made, inputs=inputs, shard=shard, force=force) as work:
        if work is None:
            return None
        tasks = tasks_of(conversion.jobs)
        _require_space(tasks, work)
        if shard is not None:
            tasks = shard.of(tasks)
        names = [name for task in tasks for name in task.names]
        resumed = len(names) - len(work.missing(names))
        if shard is None:
            names += _convert_all(conversion, tasks, work)
            _publish(conversion, output, names, facts, work)
        else:
            run_tasks(tasks, work)
        size = sum(work.done[name].bytes for name in names)
    return Converted(size, len(names), resumed, time.monotonic() - started, facts)


def sums_path(output: Path) -> Path:
    """Return where the list of an output's MD5 sums lies."""
    return beside(output, ".md5")


def _convert_all(conversion: Conversion, tasks: Sequence[BlockTask], work: ResumableOutput) -> list[str]:
    """Make all pieces; return the names of those that are small files."""
    with ThreadPoolExecutor(1) as beside_it:  # importing PyTorch takes a second or two
        making = beside_it.submit(conversion.small_files)
        run_tasks(tasks, work)
        small_files = {f"{FILES}/{name}": content for name, content in making.result().items()}
    with ChunkWriter(work) as writer:
        for name in work.missing(small_files):
            content = small_files[name]
            writer.write(name, np.frombuffer(content, np.uint8), md5_of(content))
    return list(small_files)


def _publish(
    conversion: Conversion, output: Path, names: Sequence[str], facts: Mapping[str, Any], work: ResumableOutput
) -> None:
    made = set(names)
    work.reload()
    if lost := work.missing(names):
        raise InputError(f"{work.path(lost[0])}: changed or removed after it was written; run the command again")
    place = work.path(FILES)
    for name, _ in files_below(place):
        if f"{FILES}/{name}" not in made:
            raise InputError(f"{place / name}: no file of this conversion; move it away and run the command again")
    digests = {name.removeprefix(f"{FILES}/"): work.done[name].md5 for name in sorted(names, key=os.fsencode)}
    sums = work.new_path()
    sums.write_text(format_list(digests))
    md5 = md5_text(format_list(digests))
    work.publish({output: (place, md5), sums_path(output): (sums, md5)}, [conversion.source.source_now()], facts)


def _warn_of_reading_twice(jobs: Sequence[Job]) -> None:
    items = [math.prod(job.cut.sizes[axis] for axis in job.cut.target.axes) for job in jobs]
    passes = sum(count * job.cut.passes for count, job in zip(items, jobs, strict=True)) / sum(items)
    if passes > ONCE:
        enough = max(bytes_to_read_once(job.cut.sizes, job.cut.source, job.cut.target) for job in jobs)
        print(
            f"warning: within this --memory-limit the input is read {passes:.1f} times; {limit_text(enough)} or more "
            "reads it once",
            file=sys.stderr,
        )


def _require_space(tasks: Sequence[BlockTask], work: ResumableOutput) -> None:
    """Raise InputError where the disk has less room than the pieces that are missing need, of all shards together."""
    needed = sum(task.bytes for task in tasks if work.missing(task.names))
    disk = os.statvfs(work.folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and needed > free:
        raise InputError(
            f"{work.folder}: {needed:,} bytes are still to be written, and the disk has {free:,}; make room or choose "
            "another --output"
        )
