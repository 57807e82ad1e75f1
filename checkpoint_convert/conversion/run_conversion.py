"""Run a conversion of either direction to its end: go on where a killed one was, publish, write sums and manifest.

OUTPUT.partial/, OUTPUT.journal     while it is written; a killed or failed conversion goes on from there
OUTPUT/, OUTPUT.md5, OUTPUT.manifest.json
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checkpoint_convert.conversion.journal import Journal
from checkpoint_convert.conversion.output_records import already_made, require_apart, write_sums_and_manifest
from checkpoint_convert.conversion.streaming import Job, run_jobs
from checksums.md5_list import files_below, format_list
from stage.digest import md5_file
from stage.manifest import read_manifest, record_of
from stage.publish import partial_path

PACKAGES = ("tensorstore", "numpy", "ml-dtypes")


class Conversion(Protocol):
    """One direction."""

    @property
    def stage(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Any]:
        """What the result depends on besides the source."""
        ...

    def jobs(self, workers: int, memory_limit: int) -> Sequence[Job]: ...

    def write_small_files(self, folder: Path) -> None:
        """The arrays' metadata, and what is no array."""
        ...


@dataclass(frozen=True)
class Converted:
    bytes: int
    files: int
    resumed_files: int
    """Of an earlier, killed conversion."""
    wall_s: float


def run_conversion(
    conversion: Conversion, source: Path, output: Path, *, workers: int, memory_limit: int, force: bool
) -> Converted | None:
    """Make ``output`` from ``source``; None when it is there already. ``memory_limit`` is in bytes.

    Raises InputError for a source that is not whole, different work under the output's name, or an output that holds
    the source and is to be replaced.
    """
    started = time.monotonic()
    journal_path = _journal_path(output)
    stage, options = conversion.stage, conversion.options
    if force:
        require_apart(source, output)
    if already_made(source, output, stage=stage, options=options, force=force, unfinished=journal_path.exists()):
        journal_path.unlink(missing_ok=True)
        return None
    jobs = conversion.jobs(workers, memory_limit)
    with _unfinished(output, _purpose(conversion, source), force=force) as (partial, journal):
        _write_files(conversion, jobs, partial, journal, workers, memory_limit)
        listing = _listing(partial, journal)
        _publish(partial, output)
        total = write_sums_and_manifest(
            output,
            listing,
            stage=stage,
            options=options,
            source=source,
            source_made_by=read_manifest(source),
            packages=PACKAGES,
            started=started,
        )
    return Converted(total, listing.count("\n"), journal.resumed, time.monotonic() - started)


def _journal_path(output: Path) -> Path:
    return output.with_name(output.name + ".journal")


def _purpose(conversion: Conversion, source: Path) -> dict[str, Any]:
    """What is made of what: only a journal that says the same is gone on with."""
    return {
        "stage": conversion.stage,
        "options": dict(conversion.options),
        "source": str(source.resolve()),
        "as of": record_of(source, source.name, None).__dict__,
    }


@contextmanager
def _unfinished(output: Path, purpose: Mapping[str, Any], *, force: bool) -> Iterator[tuple[Path, Journal]]:
    """The partial folder and the journal, those of a killed conversion unless ``force`` begins anew.

    A block that ends well leaves no journal. One that fails leaves both, or neither where no file was written.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    partial, journal_path = partial_path(output), _journal_path(output)
    if force:
        journal_path.unlink(missing_ok=True)
    if output.exists() and journal_path.exists():  # killed between publishing and the manifest
        output.rename(partial)
    journal = Journal(journal_path, partial, purpose)
    if not journal.resumed:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    try:
        yield partial, journal
    except BaseException:
        journal.close()
        if not journal.digests:
            shutil.rmtree(partial, ignore_errors=True)
            journal_path.unlink()
        raise
    journal.close()
    journal_path.unlink()


def _write_files(
    conversion: Conversion, jobs: Sequence[Job], partial: Path, journal: Journal, workers: int, memory_limit: int
) -> None:
    """Everything of the output that the journal does not have."""
    for job in jobs:
        for target in job.targets:
            (partial / target.name).mkdir(exist_ok=True)
    with ThreadPoolExecutor(1) as beside:
        small_files = beside.submit(conversion.write_small_files, partial)
        run_jobs(jobs, partial, journal, workers=workers, memory_limit=memory_limit)
    small_files.result()


def _listing(folder: Path, journal: Journal) -> str:
    """The md5sum-style list of the output: chunks as they were written, small files as they are."""
    digests = dict(journal.digests)
    others = [name for name in files_below(folder) if name not in digests]
    digests.update({name: md5_file(folder / name) for name in others})
    return format_list(dict(sorted(digests.items(), key=lambda item: os.fsencode(item[0]))))


def _publish(partial: Path, output: Path) -> None:
    """Bring everything to the disk and rename it. One sync of all file systems is faster than one per file."""
    os.sync()
    if output.exists():
        shutil.rmtree(output)
    os.replace(partial, output)
    os.sync()
