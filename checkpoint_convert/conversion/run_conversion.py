"""Run a conversion of either direction, or a shard of one, to its end.

The output is a resumable one (``stage/outputs/resumable_output.py``) whose pieces are the output's files: every chunk,
and the small files beside them. OUTPUT, OUTPUT.md5 and OUTPUT.manifest.json appear when all of them are there.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_convert.conversion.block_conversion import BlockTask, Job, run_tasks, tasks_of
from checkpoint_convert.conversion.blocks import ONCE, bytes_to_read_once, choose_blocks, limit_text
from checkpoint_convert.conversion.machine_memory import memory_problem
from checkpoint_convert.formats.source_files import SourceFiles
from checksums.summed_output import outputs_of, publish_with_sums
from stage.errors import InputError
from stage.outputs.manifest import Recipe, versions_of
from stage.outputs.resumable_output import ResumableOutput, resumable_output
from stage.outputs.shards import Shard
from stage.sizes import require_workers


@dataclass(frozen=True)
class Conversion:
    """One conversion: everything that is known before a value is read."""

    stage: str
    """Name of the command."""
    options: Mapping[str, Any]
    """Every option that changes a byte."""
    source: SourceFiles
    packages: Sequence[str]
    """Packages that write bytes of the output."""
    jobs: Sequence[Job]
    small_files: Callable[[], Mapping[str, bytes]]
    """Function that makes, by name, the arrays' metadata and the files that are no arrays; called beside the
    conversion."""
    facts: Mapping[str, Any]
    """Facts for the manifest; ``zero_chunks`` is the number of input chunks without a file, which are read as zeros."""


@dataclass(frozen=True)
class Converted:
    """The result of a conversion, or of one of its shards."""

    bytes: int
    """Bytes of the output's files, or of the shard's share of them."""
    files: int
    """Number of the output's files, or of the shard's share of them."""
    resumed_files: int
    """Files that existed already, made by earlier calls or by the shards that are joined."""
    wall_s: float
    facts: Mapping[str, Any]
    """Facts in the manifest."""


def run_conversion(
    conversion: Conversion,
    output: Path,
    *,
    workers: int,
    memory_limit: int,
    shard: Shard | None = None,
    force: bool = False,
) -> Converted | None:
    """Make ``output``; return None if it is already there.

    ``workers`` and ``memory_limit`` bound the blocks that are converted at the same time, and their bytes; ``shard`` is
    the share of the pieces to make, for a later call to join. Raises InputError for a source that is damaged or changes
    meanwhile, another output under the name, and a disk or memory that is too small.
    """
    started = time.monotonic()
    require_workers(workers)
    source, axes = conversion.source, [job.axes for job in conversion.jobs]
    choice = choose_blocks(memory_limit, workers, axes)
    if choice.passes > ONCE:
        print(
            f"warning: within this --memory-limit the input is read {choice.passes:.1f} times; "
            f"{limit_text(bytes_to_read_once(axes))} or more reads it once",
            file=sys.stderr,
        )
    if problem := memory_problem(choice.memory_bytes):
        raise InputError(problem)
    recipe = Recipe(conversion.stage, conversion.options, [source.source()], versions_of(*conversion.packages))
    inputs = [source.folder] if isinstance(source.folder, Path) else []
    made = outputs_of(output)
    with resumable_output(output, recipe, made=made, inputs=inputs, shard=shard, force=force) as work:
        if work is None:
            return None
        tasks = tasks_of(conversion.jobs, choice)
        _require_space(tasks, work)
        tasks = tasks if shard is None else shard.of(tasks)
        names = [name for task in tasks for name in task.names]
        resumed = len(names) - len(work.missing(names))
        with ThreadPoolExecutor(1) as beside_it:  # importing PyTorch takes a second or two
            small = beside_it.submit(conversion.small_files) if shard is None else None
            run_tasks(tasks, choice, work)
        if small is not None:
            names = publish_with_sums(names, small.result(), work, lambda: [source.source_now()], conversion.facts)
        size = sum(work.done[name].bytes for name in names)
    return Converted(size, len(names), resumed, time.monotonic() - started, conversion.facts)


def _require_space(tasks: Sequence[BlockTask], work: ResumableOutput) -> None:
    """Raise InputError if the disk has less room than the missing pieces of all shards together need."""
    needed = sum(task.bytes for task in tasks if work.missing(task.names))
    disk = os.statvfs(work.folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and needed > free:
        raise InputError(
            f"{work.folder}: {needed:,} bytes are still to be written, and the disk has {free:,}; make room or choose "
            "another --output"
        )
