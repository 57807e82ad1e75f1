"""The manifest beside a stage's output: what it read, with which options and versions, and what it wrote.

A folder counts as one record: the number of its files, the sum of their bytes, and the MD5 of its md5sum-style list
(``checksums``). A stage (see the package's text) whose manifest still holds need not run again; the next stage refuses
inputs whose manifest does not hold.
"""

import importlib.metadata
import json
import os
import platform
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stage.digest import md5_file
from stage.errors import InputError
from stage.limits.bounded_reading import DAMAGED, read_small_json
from stage.publish import beside, walked, write_text

ASKED_AT_ONCE = 16
"""Files whose sizes are asked for at a time: a shared disk takes a fraction of a millisecond to answer, and a converted
checkpoint of 175B parameters has 123,520 of them."""
SMALL_BYTES = 16 << 20
"""What is read in no time; a tokenizer has a megabyte."""


@dataclass(frozen=True)
class Record:
    """One input or output."""

    name: str
    """Path: of an output relative to the manifest's folder, of an input as it was given."""
    files: int
    """Number of files: 1, or those in a folder."""
    bytes: int
    """Their size together."""
    md5: str | None
    """MD5 of the file, or of the folder's md5sum-style list; None where nobody has read it all yet."""
    mtime_ns: int
    """Latest modification, to see quickly that nothing changed."""
    version: str | None = None
    """Of what was read from elsewhere: what its server calls this content. Left out of the file where there is none."""


@dataclass(frozen=True)
class Manifest:
    """See the module's text."""

    stage: str
    """The name by which the stage calls itself."""
    options: Mapping[str, Any]
    """JSON values only."""
    inputs: Sequence[Record]
    outputs: Sequence[Record]
    versions: Mapping[str, str]
    wall_s: float


def manifest_path(output: Path) -> Path:
    """Where the manifest of ``output`` (a file, a folder or a dataset prefix) lies."""
    return beside(output, ".manifest.json")


def record_of(path: Path, name: str, md5: str | None) -> Record:
    """The record of a file or folder as it is on disk now."""
    stats = _stats_below(path) if path.is_dir() else [path.stat()]
    newest = max((stat.st_mtime_ns for stat in stats), default=0)
    return Record(name, len(stats), sum(stat.st_size for stat in stats), md5, newest)


def _stats_below(folder: Path) -> list[os.stat_result]:
    """Of all files in ``folder`` and its folders. Each is asked for once, and several at a time."""
    folders = ((inner, names) for inner, names in walked(folder) if names)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return [found for some in pool.map(_stats_of, folders) for found in some]


def _stats_of(files: tuple[str, Iterable[str]]) -> list[os.stat_result]:
    folder, names = files
    found = []
    for name in names:
        try:
            one = Path(folder, name).stat()
        except FileNotFoundError:
            continue  # a link that leads nowhere, or a file that is gone: it is missing in the number of files
        if stat.S_ISREG(one.st_mode):
            found.append(one)
    return found


def write_manifest(
    output: Path,
    *,
    stage: str,
    options: Mapping[str, Any],
    inputs: Sequence[Record],
    outputs: Sequence[Record],
    packages: Sequence[str],
    started: float,
) -> None:
    """Write the manifest of ``output``; ``started`` is ``time.monotonic()`` at the stage's beginning."""
    versions = {"python": platform.python_version()}
    versions.update({package: importlib.metadata.version(package) for package in packages})
    manifest = Manifest(stage, options, inputs, outputs, versions, round(time.monotonic() - started, 3))
    fields = asdict(manifest)
    for record in (*fields["inputs"], *fields["outputs"]):
        if record["version"] is None:
            del record["version"]
    write_text(manifest_path(output), json.dumps(fields, indent=1) + "\n")


def read_manifest(output: Path) -> Manifest | None:
    """The manifest of ``output``, or None where there is none. Raises InputError where it is not readable."""
    path = manifest_path(output)
    try:
        fields = read_small_json(path)
        fields["inputs"] = [_record(record) for record in fields["inputs"]]
        fields["outputs"] = [_record(record) for record in fields["outputs"]]
        manifest = Manifest(**fields)
        if not isinstance(manifest.stage, str) or not isinstance(manifest.options, dict):
            raise TypeError("stage and options are not a name and an object")
        return manifest
    except FileNotFoundError:
        return None
    except DAMAGED as error:
        raise InputError(f"{path}: not a manifest ({error}); delete it and make {output.name} again") from error


def _record(fields: Mapping[str, Any]) -> Record:
    record = Record(**fields)
    numbers = (record.files, record.bytes, record.mtime_ns)
    if not isinstance(record.name, str) or not all(type(number) is int for number in numbers):
        raise TypeError(f"a record of {str(record.name)[:80]!r}")
    return record


def require_intact(output: Path) -> Manifest | None:
    """The manifest of ``output`` after comparing sizes and file counts with what is on disk, and of single files up to
    SMALL_BYTES the MD5: what costs nothing and is never left out.

    Returns None when there is no manifest. Raises InputError naming the file that is missing or differs. All contents
    are compared by ``python -m checksums verify``, not here: a checkpoint is 2 TB.
    """
    manifest = read_manifest(output)
    for record in manifest.outputs if manifest else ():
        _require_as_recorded(output, record)
    return manifest


def _require_as_recorded(output: Path, record: Record) -> None:
    path = output.parent / record.name
    if not path.exists():
        raise InputError(f"{path}: missing, but listed in {manifest_path(output)}; make it again")
    now = record_of(path, record.name, None)
    if (now.files, now.bytes) != (record.files, record.bytes):
        raise InputError(
            f"{path}: {now.files} files of {now.bytes} bytes, but {manifest_path(output).name} says "
            f"{record.files} files of {record.bytes} bytes; make it again"
        )
    if record.md5 is not None and now.bytes <= SMALL_BYTES and path.is_file() and md5_file(path) != record.md5:
        raise InputError(f"{path}: its MD5 is not that in {manifest_path(output).name}; make it again")


def is_current(output: Path, *, stage: str, options: Mapping[str, Any], inputs: Sequence[Path | Record]) -> bool:
    """Whether ``output`` was made by this stage, with these options, from these inputs, and is still intact.

    An input that lies elsewhere by now is the same one where its contents are (MD5 of a file, manifest of a folder).
    One on a server is given as it would be recorded now, without its MD5.
    """
    try:
        manifest = require_intact(output)
    except InputError:
        return False
    return manifest is not None and _is_of(manifest, stage, options, inputs)


def is_unfinished(output: Path, *, stage: str, options: Mapping[str, Any], inputs: Sequence[Path | Record]) -> bool:
    """Whether the same work was ended while it published: its manifest is there, for that is written first, and of its
    outputs some are missing, while those that are there are as it says."""
    try:
        manifest = read_manifest(output)
        if manifest is None or not _is_of(manifest, stage, options, inputs):
            return False
        there = [record for record in manifest.outputs if os.path.lexists(output.parent / record.name)]
        for record in there:
            _require_as_recorded(output, record)
    except InputError:
        return False
    return len(there) < len(manifest.outputs)


def _is_of(manifest: Manifest, stage: str, options: Mapping[str, Any], inputs: Sequence[Path | Record]) -> bool:
    """Whether this stage made it with these options from these inputs."""
    if manifest.stage != stage or dict(manifest.options) != dict(options) or len(manifest.inputs) != len(inputs):
        return False
    return all(_is_same(record, path) for record, path in zip(manifest.inputs, inputs, strict=True))


def _is_same(record: Record, path: Path | Record) -> bool:
    if isinstance(path, Record):
        told = (path.name, path.bytes, path.version)
        return path.version is not None and told == (record.name, record.bytes, record.version)
    if not path.exists():
        return False
    now = record_of(path, os.fspath(path), None)
    if (now.files, now.bytes) != (record.files, record.bytes):
        return False
    if (now.name, now.mtime_ns) == (record.name, record.mtime_ns):
        return True
    return record.md5 is not None and _md5_of(path) == record.md5


def _md5_of(path: Path) -> str | None:
    """Of a file by reading it, of a folder by its own manifest; None where it has none."""
    if path.is_file():
        return md5_file(path)
    try:
        manifest = require_intact(path)
    except InputError:
        return None
    outputs = manifest.outputs if manifest else ()
    return next((output.md5 for output in outputs if output.name == path.name), None)
