"""Inputs as they were named, files and addresses mixed: one way to open them for all commands that read text."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from data_prep.corpus.input_files import InputFile, source_of
from data_prep.corpus.remote_input import describe_all
from stage.errors import InputError
from stage.limits.sizes import parse_bytes
from stage.manifest import Record, record_of
from stage.remote.object_address import is_address, parse_address
from stage.remote.remote_file import RemoteFile


def parse_inputs(
    texts: Sequence[str], *, endpoint_url: str | None, bandwidth_limit: str | None, at_once: int = 1
) -> list[InputFile]:
    """Paths and addresses. ``at_once``: how many are read at the same time, which share the bandwidth.

    Raises InputError for what is no address, and for options of addresses where there is none.
    """
    remote = sum(map(is_address, texts))
    if not remote and (endpoint_url is not None or bandwidth_limit is not None):
        raise InputError("--endpoint-url and --bandwidth-limit are for inputs with an address, of which there is none")
    limit = None if bandwidth_limit is None else parse_bytes(bandwidth_limit, "--bandwidth-limit")
    each = None if limit is None else limit / max(1, min(at_once, remote))
    return [
        RemoteFile(parse_address(text, endpoint_url if text.lower().startswith("s3:") else None), each)
        if is_address(text)
        else Path(text)
        for text in texts
    ]


def described_inputs(inputs: Sequence[InputFile], numbers: Collection[int] | None = None) -> list[InputFile]:
    """The same, those that lie elsewhere with what their servers say of them now; of these only ``numbers``, if given.

    Raises InputError for the first that cannot be had. Says so where a server does not tell one content from another.
    """
    chosen = range(len(inputs)) if numbers is None else numbers
    asked = {number: path for number in chosen if isinstance(path := inputs[number], RemoteFile)}
    found: dict[int, InputFile] = dict(zip(asked, described := describe_all(list(asked.values())), strict=True))
    unknown = [file for file in described if file.facts.version is None]
    if unknown:
        print(
            f"{unknown[0]}: sends neither ETag nor time of modification; of {len(unknown):,} such files nobody can say "
            "whether they change, and a command that goes on begins with them anew",
            file=sys.stderr,
        )
    return [found.get(number, path) for number, path in enumerate(inputs)]


def local_of(inputs: Sequence[InputFile]) -> list[Path]:
    return [path for path in inputs if isinstance(path, Path)]


def as_input(path: InputFile) -> Path | Record:
    """For the manifest's comparison."""
    if isinstance(path, Path):
        return path
    source = source_of(path)
    return Record(source.path, 1, source.bytes, None, source.mtime_ns, source.version)


def record_of_input(path: InputFile, md5: str | None) -> Record:
    """For the manifest of what was made of it."""
    found = as_input(path)
    return found if isinstance(found, Record) else record_of(found, str(found), md5)
