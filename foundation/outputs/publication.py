"""The last step of an output: its files get their names, and the manifest is written.

The renames are noted in publish.json before. If a process is killed between them, the next command makes those that
are still due; it replaces nothing but the older output that the manifest beside it describes.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foundation.disk_answers import folder_is_there, is_there, name_is_taken
from foundation.errors import InputError
from foundation.file_formats.json_files import as_json, read_json
from foundation.outputs.manifest import (
    Manifest,
    Record,
    manifest_path,
    read_manifest,
    record_of,
    record_problem,
)
from foundation.outputs.output_parts import PUBLISH
from foundation.outputs.publish import partial_path, replace_path, sync_to_disk, unique_partial, write_text


@dataclass(frozen=True)
class Publication:
    """The content of publish.json."""

    manifest: Manifest
    renames: Sequence[tuple[str, str]]
    """Renames from a path below OUTPUT.partial to a name beside OUTPUT."""


def publish_pending(output: Path) -> bool:
    """Make the remaining renames of publish.json, write the manifest, remove the folder; return False if there are
    none.

    Raises InputError if a name has been taken by something else meanwhile.
    """
    folder = partial_path(output)
    try:
        publication = read_json(folder / PUBLISH, Publication, mend=f"remove {folder} and make it again")
    except (FileNotFoundError, NotADirectoryError):
        return False
    pending = [(folder / source, output.parent / name) for source, name in publication.renames]
    older = {record.name: record for record in _older_records(output)}
    for source, target in pending:
        problem = _problem_with(target, older.get(target.name)) if is_there(source) else None
        if problem and is_there(source):  # else another process, which read the same publish.json, was faster
            raise InputError(
                f"{problem}, and the finished {source} waits for its name, after a kill; move {target} away and run "
                "the command again"
            )
    for source, target in pending:
        if is_there(source):
            with suppress(FileNotFoundError):  # as above
                _take_name(source, target, unique_partial(folder))
    for record in publication.manifest.outputs:
        if problem := record_problem(output.parent / record.name, record):
            raise InputError(f"{problem}, after it was published; remove {folder} and make it again")
    write_text(manifest_path(output), as_json(publication.manifest))
    remove_partial(folder)
    return True


def _take_name(source: Path, target: Path, aside: Path) -> None:
    """Rename ``source`` to ``target``. An older folder there is moved ``aside``, to a name that a killed process may
    leave. Raises FileNotFoundError if another process has renamed it: the name is that process's then."""
    try:
        source.rename(target)
    except FileNotFoundError:
        raise
    except OSError:  # a folder that is not empty
        replace_path(source, target, aside)
    else:
        sync_to_disk(target.parent)


def _older_records(output: Path) -> Sequence[Record]:
    try:
        manifest = read_manifest(output)
    except InputError:  # damaged: it describes nothing
        return ()
    return manifest.outputs if manifest else ()


def _problem_with(target: Path, record: Record | None) -> str | None:
    """Describe why ``target`` must not be replaced; None if the name is free or belongs to the older output."""
    if not is_taken(target):
        return None
    if record is None:
        return f"{target} exists, and no manifest says that a command made it"
    if problem := record_problem(target, record):
        return problem
    is_newer = record_of(target, target.name, None).mtime_ns > record.mtime_ns
    return f"{target}: modified after it was made" if is_newer else None


def is_taken(path: Path) -> bool:
    """Return whether the name is taken; an empty folder, made by its user beforehand, does not count."""
    return name_is_taken(path) and (path.is_symlink() or not folder_is_there(path) or any(path.iterdir()))


def remove_partial(folder: Path) -> None:
    """Remove OUTPUT.partial; for other processes it is gone at once."""
    aside = unique_partial(folder)
    with suppress(FileNotFoundError):  # another process was faster
        folder.rename(aside)
        for _ in range(2):  # a process that was about to write into it may have done so once more
            shutil.rmtree(aside, ignore_errors=True)
