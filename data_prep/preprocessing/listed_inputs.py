"""Inputs as they were named: what their servers say of them, and the published MD5 sums that they must have."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from checksums.md5_list import read_list
from data_prep.corpus.input_files import STDIN, InputFile, source_of
from data_prep.corpus.parquet_texts import is_parquet
from data_prep.corpus.remote_input import describe_all
from data_prep.preprocessing.shard_parts import Part, PartRecord
from data_prep.preprocessing.tokenize_workers import Finished
from stage.errors import InputError
from stage.manifest import Record
from stage.remote.remote_file import RemoteFile
from stage.task_shard import TaskShard


def numbers_of(count: int, shard: TaskShard | None) -> range:
    """Which of so many files are this task's."""
    return range(count) if shard is None else range(shard.index, count, shard.count)


def require_in_order(inputs: Sequence[InputFile]) -> None:
    """Raise InputError for a remote file that cannot be read from beginning to end."""
    for path in inputs:
        if isinstance(path, RemoteFile) and is_parquet(path):
            raise InputError(f"{path}: a Parquet file is not read from beginning to end; download it first")


def described_inputs(inputs: Sequence[InputFile], shard: TaskShard | None) -> list[InputFile]:
    """The same, those of ``shard`` that lie elsewhere with what their servers say of them now.

    Raises InputError for the first that cannot be had. Says so where a server does not tell one content from another.
    """
    remote = {number: inputs[number] for number in numbers_of(len(inputs), shard)}
    asked = {number: path for number, path in remote.items() if isinstance(path, RemoteFile)}
    found: dict[int, InputFile] = dict(zip(asked, described := describe_all(list(asked.values())), strict=True))
    unknown = [file for file in described if file.facts.version is None]
    if unknown:
        print(
            f"{unknown[0]}: sends neither ETag nor time of modification; of {len(unknown):,} such files nobody can say "
            "whether they change, and a command that goes on begins with them anew",
            file=sys.stderr,
        )
    return [found.get(number, path) for number, path in enumerate(inputs)]


def as_input(path: InputFile) -> Path | Record:
    """For the manifest's comparison."""
    if isinstance(path, Path):
        return path
    source = source_of(path)
    return Record(source.path, 1, source.bytes, None, source.mtime_ns, source.version)


def listed_sums(md5_list: Path, inputs: Sequence[InputFile]) -> dict[str, str]:
    """The MD5 of each input, by its path: that of the longest end of it that is listed.

    Raises InputError for one that is not.
    """
    sums, found = read_list(md5_list), {}
    for path in map(str, inputs):
        parts = path.split("/")
        ends = ("/".join(parts[first:]) for first in range(len(parts)))
        name = next((end for end in ends if end in sums), None)
        if name is None or path == STDIN:
            raise InputError(f"--md5-list {md5_list}: has no sum of {path}; leave the option out, or the file")
        found[path] = sums[name]
    return found


def with_listed_sums(finished: Finished, sums: Mapping[str, str]) -> Iterator[Sequence[tuple[Part, PartRecord]]]:
    """Pass files on that have the sum they should. Raises InputError for the first that has not."""
    for parts in finished:
        part, record = parts[0]
        expected = sums.get(part.source.path)
        if expected not in (None, record.source_md5):
            raise InputError(
                f"{part.input}: MD5 {record.source_md5}, --md5-list has {expected}; nothing was published, get the "
                "published file"
            )
        yield parts
