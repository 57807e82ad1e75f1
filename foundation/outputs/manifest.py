"""Recipes, which hold everything that an output depends on, and manifests, which add records of the written files.

A :class:`Recipe` is everything that changes a byte of an output: the command, its options, the contents of its inputs,
and the versions of packages that affect it. The same recipe is stored in the manifest of an output
(``NAME.manifest.json``) and in the folder of an unfinished one, and compared to find out whether an output is already
made.

A folder counts as one record: the number of its files, the sum of their bytes, and the MD5 of its md5sum-style list.
"""

import importlib.metadata
import os
import platform
import stat
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from foundation.disk_answers import file_is_there, folder_is_there, is_there
from foundation.errors import InputError
from foundation.file_formats.json_files import as_json, read_json
from foundation.file_formats.md5_list import read_list
from foundation.grouped_tasks import grouped_map
from foundation.outputs.digest import md5_file, md5_samples, md5_text
from foundation.outputs.publish import sibling, walked, write_text
from foundation.plain_text import counted
from foundation.regular_files import kind_of

ASKED_AT_ONCE = 16
"""Files asked for at the same time: a shared disk takes a fraction of a millisecond to answer, and a converted
checkpoint of 175B parameters has 123,520 files."""
SAMPLED = "samples"
"""Kind of an identity of size and samples, whatever the time of modification."""
NAMED = 3
"""Most files that a message names."""
SMALL_BYTES = 16 << 20
"""Most bytes of a file that is always read whole, because it takes no time; a tokenizer has a megabyte."""


@dataclass(frozen=True)
class Source:
    """One input of an output."""

    name: str
    """Path or address as given by the user; it may change while the content stays."""
    files: int
    """Number of files: 1, or the number in a folder."""
    bytes: int
    """Total bytes of the files."""
    identity: str = ""
    """Identity of the content: "md5:…" of all bytes, "samples:…" of size, middle and ends, "head:…" of these and the
    time of modification, "etag:…" of a server."""


@dataclass(frozen=True)
class Recipe:
    """Everything that an output depends on."""

    stage: str
    """Name of the command that makes it."""
    options: Mapping[str, Any]
    """Every option that changes a byte; JSON values only."""
    inputs: Sequence[Source]
    """The inputs, in an order that counts."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that change bytes."""
    bytes_version: int = 1
    """Version of the command's own bytes: raised when it can make other bytes of the same inputs and options. The
    manifests of versions 0.1 to 0.3 have none, which stands for 1."""

    def differences(self, former: "Recipe") -> list[str]:
        """Describe the differences from ``former``, naming both sides; return nothing if both make the same output."""
        if self.stage != former.stage:
            return [f"the command is {self.stage}, not {former.stage}"]
        differences = _differences("", self.options, former.options)
        differences += _differences("version of ", self.versions, former.versions)
        if self.bytes_version != former.bytes_version:
            differences.append(
                f"version {self.bytes_version} of the bytes that {self.stage} makes, not {former.bytes_version}"
            )
        if len(self.inputs) != len(former.inputs):
            number = f"there are {len(self.inputs):,} inputs, not {len(former.inputs):,}"
            return [*differences, number + _only_in("new", self, former) + _only_in("missing", former, self)]
        input_differences = [
            difference
            for source, recorded in zip(self.inputs, former.inputs, strict=True)
            if (difference := _input_difference(source, recorded))
        ]
        identities = [sorted(source.identity for source in recipe.inputs) for recipe in (self, former)]
        if input_differences and identities[0] == identities[1]:
            input_differences = ["the same inputs are in another order"]
        return differences + input_differences


def _only_in(word: str, recipe: Recipe, other: Recipe) -> str:
    known = {source.identity for source in other.inputs}
    names = [source.name for source in recipe.inputs if source.identity not in known]
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"; {word}: {names[0]}{more}" if names else ""


def _input_difference(source: Source, recorded: Source) -> str | None:
    if (source.files, source.bytes, source.identity) == (recorded.files, recorded.bytes, recorded.identity):
        return None
    same_size = (source.files, source.bytes) == (recorded.files, recorded.bytes)
    kinds = {identified.identity.partition(":")[0] for identified in (source, recorded)}
    if same_size and SAMPLED in kinds and len(kinds) > 1:
        return None  # versions 0.1 to 0.3 identified the same files by their times, too, which nobody can compare
    changed = "content or time of modification" if "head" in kinds else "content"
    return f"the {changed} of {source.name} is not that of {recorded.name} as it was"


def _differences(kind: str, values: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """Compare values in the form of JSON, in which a tuple is a list."""
    values, recorded = msgspec.json.decode(msgspec.json.encode([values, recorded]))
    return [
        f"{kind}{name} is {_shortened(values.get(name))}, not {_shortened(recorded.get(name))}"
        for name in sorted(values.keys() | recorded.keys())
        if values.get(name) != recorded.get(name)
    ]


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


@dataclass(frozen=True)
class Record:
    """The record of one output."""

    name: str
    """Path relative to the manifest's folder."""
    files: int
    """Number of files: 1, or the number in a folder."""
    bytes: int
    """Total bytes of the files."""
    md5: str | None
    """MD5 of the file, or of the folder's md5sum-style list; None if nobody has read it all."""
    mtime_ns: int
    """Latest time of modification, to see quickly that nothing changed."""


@dataclass(frozen=True, kw_only=True)
class Manifest(Recipe):
    """A recipe, the outputs made by it, and the environment in which they were made."""

    outputs: Sequence[Record]
    wall_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    """Other versions, for information."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Figures of the output to keep; JSON values."""


def manifest_path(output: Path) -> Path:
    """Return the path of the manifest of ``output`` (a file, a folder or a dataset prefix)."""
    return sibling(output, ".manifest.json")


def made_by(
    recipe: Recipe, outputs: Sequence[Record], *, wall_s: float, facts: Mapping[str, Any] | None = None
) -> Manifest:
    """Return the manifest of outputs that this process has made by ``recipe`` in ``wall_s`` seconds."""
    return Manifest(
        recipe.stage,
        recipe.options,
        recipe.inputs,
        recipe.versions,
        recipe.bytes_version,
        outputs=outputs,
        wall_s=round(wall_s, 3),
        environment={"python": platform.python_version()},
        facts=facts or {},
    )


def versions_of(*packages: str) -> dict[str, str]:
    """Return the installed versions of ``packages``."""
    return {package: importlib.metadata.version(package) for package in packages}


def write_manifest(output: Path, manifest: Manifest) -> None:
    write_text(manifest_path(output), as_json(manifest))


def read_manifest(output: Path) -> Manifest | None:
    """Read the manifest of ``output``; return None if there is none. Raises InputError if it cannot be read."""
    path = manifest_path(output)
    try:
        return read_json(path, Manifest, mend=f"remove it together with {output.name}, and make {output.name} again")
    except (FileNotFoundError, NotADirectoryError):
        return None


def require_intact(output: Path) -> Manifest | None:
    """Read the manifest of ``output`` and compare it with the disk.

    File counts and sizes are compared, and the MD5 of single files up to SMALL_BYTES: these comparisons cost nothing
    and are never left out. Returns None when there is no manifest. Raises InputError naming the file that is missing or
    differs. All contents are compared by ``python -m checksums verify``, not here: a checkpoint is 2 TB.
    """
    manifest = read_manifest(output)
    for record in manifest.outputs if manifest else ():
        if problem := record_problem(output.parent / record.name, record):
            raise InputError(f"{problem}, {manifest_path(output).name} says otherwise; make it again")
    return manifest


def record_problem(path: Path, record: Record) -> str | None:
    """Describe how ``path`` differs from its record, beginning with its name; return None if it does not."""
    if not is_there(path):
        return f"{path}: missing"
    present = record_of(path, record.name, None)
    if (present.files, present.bytes) != (record.files, record.bytes):
        return (
            f"{path}: {counted(present.files, 'file')} of {present.bytes:,} bytes instead of {record.files:,} of "
            f"{record.bytes:,}{_named_files(path, record)}"
        )
    if record.md5 is not None and present.bytes <= SMALL_BYTES and file_is_there(path) and md5_file(path) != record.md5:
        return f"{path}: its MD5 is another"
    return None


def _named_files(folder: Path, record: Record) -> str:
    """Name files that only the folder has, or only the list of its sums, if that list lies next to it."""
    sums = sibling(folder, ".md5")
    if not folder_is_there(folder) or not file_is_there(sums) or md5_file(sums) != record.md5:
        return ""
    listed, existing = read_list(sums).keys(), {name for name, _ in files_below(folder)}
    kinds = [("unexpected", sorted(existing - listed)), ("missing", sorted(listed - existing))]
    return "".join(f"; {kind}: {', '.join(names[:NAMED])}" for kind, names in kinds if names)


def record_of(path: Path, name: str, md5: str | None) -> Record:
    """Return the record of a file or folder in its present state on disk."""
    stats = [status for _, status in files_below(path)] if folder_is_there(path) else [path.stat()]
    newest = max((status.st_mtime_ns for status in stats), default=0)
    return Record(name, len(stats), sum(status.st_size for status in stats), md5, newest)


def source_of(path: Path, name: str | None = None) -> Source:
    """Return the input ``path``, a file or a folder, in its present state on disk."""
    name = str(path) if name is None else name
    if not folder_is_there(path):
        status = path.stat()
        return Source(name, 1, status.st_size, identity_of(path, status))
    below = sorted(files_below(path), key=lambda item: item[0])
    identities = grouped_map(lambda item: identity_of(path / item[0], item[1]), below, ASKED_AT_ONCE)
    lines = [f"{identity}  {inner}\n" for (inner, _), identity in zip(below, identities, strict=True)]
    return Source(name, len(below), sum(status.st_size for _, status in below), f"md5:{md5_text(''.join(lines))}")


def identity_of(path: Path, status: os.stat_result) -> str:
    """Return the identity of a file's content: for small files, the MD5.

    For large files it is the MD5 of the size, the time of modification, the middle and both ends, where gzip and zip
    keep sums of everything. Raises InputError for a pipe, device or socket, which may never end.
    """
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: {kind_of(status.st_mode)}, not a regular file")
    if status.st_size <= 1 << 20:
        return f"md5:{md5_file(path)}"
    return f"head:{md5_text(f'{status.st_mtime_ns} {md5_samples(path, samples=3)}')}"


def files_below(folder: Path) -> list[tuple[str, os.stat_result]]:
    """Return all regular files below ``folder``, following links: the path relative to it, and the file's status."""
    return [(name, status) for name, status in entries_below(folder) if status is not None]


def entries_below(folder: Path) -> list[tuple[str, os.stat_result | None]]:
    """Return everything below ``folder`` that is no folder: the path relative to it, and the file's status.

    The status is None for a link that leads nowhere, and for pipes, devices and sockets. Several folders are read at
    the same time.
    """
    start = len(os.path.join(folder, ""))
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return [(path[start:], status) for group in pool.map(_stats_of, walked(folder)) for path, status in group]


def _stats_of(files: tuple[str, Iterable[str]]) -> list[tuple[str, os.stat_result | None]]:
    entries: list[tuple[str, os.stat_result | None]] = []
    for path in (os.path.join(files[0], name) for name in files[1]):
        try:
            status = os.stat(path)  # noqa: PTH116  # a Path for each of 100,000 files takes longer
        except FileNotFoundError:
            entries.append((path, None))
        else:
            entries.append((path, status if stat.S_ISREG(status.st_mode) else None))
    return entries
