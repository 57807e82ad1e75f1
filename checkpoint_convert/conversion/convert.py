"""What both directions share: resuming, publishing, the list of MD5 sums and the manifest.

OUTPUT.partial/, OUTPUT.journal     while it is written; a killed or failed conversion goes on from there
OUTPUT/, OUTPUT.md5, OUTPUT.manifest.json
"""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checkpoint_convert.conversion.journal import Journal
from checkpoint_convert.conversion.streaming import Job, run_jobs
from checksums.md5_list import format_list
from stage.digest import md5_file, md5_text
from stage.errors import InputError
from stage.manifest import is_current, read_manifest, record_of, write_manifest
from stage.publish import partial_path, write_text

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


def convert(
    conversion: Conversion, source: Path, output: Path, *, workers: int, memory_limit: int, force: bool
) -> Converted | None:
    """Make ``output`` from ``source``; None when it is there already. ``memory_limit`` is in bytes.

    Raises InputError for a source that is not whole, or different work under the output's name.
    """
    started = time.monotonic()
    journal_path = output.with_name(output.name + ".journal")
    if not force and is_current(output, stage=conversion.stage, options=conversion.options, inputs=[source]):
        journal_path.unlink(missing_ok=True)
        return None
    if output.exists() and not force and not journal_path.exists():
        raise InputError(
            f"{output}: exists and was made from another source or options, or its manifest is missing; "
            "choose another --output or pass --force"
        )
    jobs = conversion.jobs(workers, memory_limit)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_path(output)
    purpose = {
        "stage": conversion.stage,
        "options": dict(conversion.options),
        "source": str(source.resolve()),
        "as of": record_of(source, source.name, None).__dict__,
    }
    if force and journal_path.exists():
        journal_path.unlink()
    if output.exists() and journal_path.exists():  # killed between publishing and the manifest
        output.rename(partial)
    journal = Journal(journal_path, partial, purpose)
    if not journal.resumed:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    try:
        for job in jobs:
            for target in job.targets:
                (partial / target.name).mkdir(exist_ok=True)
        with ThreadPoolExecutor(1) as beside:
            small_files = beside.submit(conversion.write_small_files, partial)
            run_jobs(jobs, partial, journal, workers=workers, memory_limit=memory_limit)
        small_files.result()
        listing = _listing(partial, journal)
        _publish(partial, output)
        total = _write_manifest(conversion, source, output, listing, started)
    except BaseException:
        journal.close()
        if not journal.digests:
            shutil.rmtree(partial, ignore_errors=True)
            journal_path.unlink()
        raise
    journal.close()
    journal_path.unlink()
    files = listing.count("\n")
    return Converted(total, files, journal.resumed, time.monotonic() - started)


def _listing(folder: Path, journal: Journal) -> str:
    """The md5sum-style list of the output: chunks as they were written, small files as they are."""
    digests = dict(journal.digests)
    small = [*folder.glob("*/.zarray"), *(path for path in folder.iterdir() if path.is_file())]
    digests.update({str(path.relative_to(folder)): md5_file(path) for path in small})
    return format_list(dict(sorted(digests.items(), key=lambda item: os.fsencode(item[0]))))


def _publish(partial: Path, output: Path) -> None:
    """Bring everything to the disk and rename it. One sync of all file systems is faster than one per file."""
    os.sync()
    if output.exists():
        shutil.rmtree(output)
    os.replace(partial, output)
    os.sync()


def _write_manifest(conversion: Conversion, source: Path, output: Path, listing: str, started: float) -> int:
    write_text(output.with_name(output.name + ".md5"), listing)
    made_by = read_manifest(source)
    source_md5 = made_by.outputs[0].md5 if made_by else None
    record = record_of(output, output.name, md5_text(listing))
    write_manifest(
        output,
        stage=conversion.stage,
        options=conversion.options,
        inputs=[record_of(source, str(source), source_md5)],
        outputs=[record],
        packages=PACKAGES,
        started=started,
    )
    return record.bytes
