"""The published MD5 sums that inputs must have, and which of them are a task's."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from checksums.md5_list import read_list
from data_prep.corpus.input_files import STDIN, InputFile
from data_prep.preprocessing.shard_parts import Part, PartRecord
from data_prep.preprocessing.tokenize_workers import Finished
from stage.errors import InputError
from stage.task_shard import TaskShard


def numbers_of(count: int, shard: TaskShard | None) -> range:
    """Which of so many files are this task's."""
    return range(count) if shard is None else range(shard.index, count, shard.count)


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
