"""Parts: what tokenising one input file, or a stripe of its blocks, gives; a killed run does not have to make it again.

A part is ``NAME.bin`` (token ids), ``NAME.sizes`` (int32 lengths of documents) and ``NAME.json`` (the record: what it
was made from, and how), published in this order. The record has a CRC-32 of each block, which is compared when the
parts are joined: a crash of the machine may leave files of the right size that hold zeros.

A file that several workers share is divided into stripes: stripe k of n takes the blocks k, k + n, …
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from data_prep.corpus.input_files import STDIN, InputFile, SourceFile, source_of
from data_prep.corpus.remote_input import describe_all
from stage.digest import md5_file
from stage.errors import InputError
from stage.limits.bounded_reading import DAMAGED, read_small_json
from stage.publish import write_text
from stage.remote.remote_file import RemoteFile

OnBadLine = Literal["stop", "skip"]
Tokens = tuple[npt.NDArray[Any], npt.NDArray[np.int32]]
"""Token ids of documents end to end, and the documents' lengths."""


@dataclass(frozen=True)
class Method:
    """What the bytes of a part depend on besides its file."""

    tokenizer_md5: str
    dtype: str
    on_bad_line: OnBadLine
    text_key: str
    end_of_document: int | None
    """Token that is put behind each document."""
    filter: str | None
    """The user's filter and the MD5 of its file."""


@dataclass(frozen=True)
class Part:
    """Stripe ``stripe`` of ``stripes`` of the input file number ``number``."""

    folder: Path
    number: int
    input: InputFile
    source: SourceFile
    """The input as it was when the command began."""
    method: Method
    stripe: int
    stripes: int

    def path(self, suffix: str) -> Path:
        return self.folder / f"{self.number:05d}.stripe-{self.stripe}-of-{self.stripes}.{suffix}"


PART_FILE = re.compile(
    r"([0-9]{5,}\.(stripe-[0-9]+-of-[0-9]+\.(bin|sizes|json)|lock)|lock|joined\.json)(\.owner)?(\..*\.partial|\.[0-9a-f-]+)?"
)
"""Names of all files in a folder of parts that are made here."""


@dataclass(frozen=True)
class BlockRecord:
    """One block of a part."""

    documents: int
    tokens: int
    crc: int
    """CRC-32 of the ids and then the lengths, as they lie in the files."""


@dataclass(frozen=True)
class PartRecord:
    """What ``NAME.json`` holds."""

    source: SourceFile
    method: Method
    source_bytes: int
    """That were read; of standard input nothing else is known."""
    source_md5: str
    blocks: list[BlockRecord]
    """Of this stripe."""
    skipped: list[tuple[int, str]]
    """Number of each line that was left out, and why."""
    filtered: int
    """Documents that the user's filter left out."""


def crc_of(ids: npt.NDArray[Any], sizes: npt.NDArray[np.int32]) -> int:
    return int(isal_zlib.crc32(sizes.data, isal_zlib.crc32(ids.data)))


def write_record(part: Part, record: PartRecord) -> None:
    """Publish the record, which makes the part whole."""
    write_text(part.path("json"), json.dumps(dataclasses.asdict(record)) + "\n")


def read_record(part: Part) -> PartRecord | None:
    """The record of a finished part; None if it is not there or was made from something else or otherwise."""
    try:
        fields = read_small_json(part.path("json"))
        record = PartRecord(
            SourceFile(**fields["source"]),
            Method(**fields["method"]),
            fields["source_bytes"],
            fields["source_md5"],
            [BlockRecord(**block) for block in fields["blocks"]],
            [(line, message) for line, message in fields["skipped"]],
            fields["filtered"],
        )
        documents = sum(block.documents for block in record.blocks)
        tokens = sum(block.tokens for block in record.blocks)
        sizes = (part.path("bin").stat().st_size, part.path("sizes").stat().st_size)
    except (FileNotFoundError, InputError, *DAMAGED):
        return None
    whole = sizes == (tokens * np.dtype(part.method.dtype).itemsize, documents * 4)
    return record if whole and _same_method(record, part.method) and _same_source(record, part.source) else None


def _same_method(record: PartRecord, method: Method) -> bool:
    """A part without bad lines is the same whatever is done about them."""
    if record.skipped and method.on_bad_line == "stop":
        return False
    return dataclasses.replace(record.method, on_bad_line=method.on_bad_line) == method


def _same_source(record: PartRecord, source: SourceFile) -> bool:
    """The file as it was, or one of the same content, wherever it lies by now; on a server, as far as that can tell."""
    if record.source == source:
        return True
    if source.path == STDIN or source.is_remote or record.source.bytes != source.bytes:
        return False
    return md5_file(Path(source.path)) == record.source_md5


def stripes_there(folder: Path) -> dict[int, list[int]]:
    """Into how many stripes earlier runs have divided each file, by its number."""
    found: dict[int, list[int]] = {}
    for path in folder.iterdir():
        match = re.fullmatch(r"([0-9]{5,})\.stripe-0-of-([1-9][0-9]{0,3})\.json", path.name)
        if match is not None:
            found.setdefault(int(match[1]), []).append(int(match[2]))
    return found


def made_earlier(parts: Sequence[Part]) -> bool:
    """Whether all of these are whole."""
    return all(part.path("json").exists() for part in parts) and all(read_record(part) for part in parts)


def require_unchanged(part: Part) -> None:
    """Raise InputError where the input file is not what it was when the command began."""
    if part.source.path == STDIN:
        return
    now = describe_all([part.input])[0] if isinstance(part.input, RemoteFile) else part.input
    if source_of(now) != part.source:
        raise InputError(f"{part.input}: changed while it was read; run the command again")


def blocks_of_part(part: Part, record: PartRecord) -> Iterator[Tokens]:
    """The blocks of a finished part, read one after the other, for the last time.

    Raises InputError for a part that does not hold what was written, and removes its record.
    """
    with part.path("bin").open("rb", buffering=0) as ids, part.path("sizes").open("rb", buffering=0) as sizes:
        for block in record.blocks:
            found = np.fromfile(ids, part.method.dtype, block.tokens), np.fromfile(sizes, "<i4", block.documents)
            if crc_of(*found) != block.crc or int(found[1].sum(dtype=np.int64)) != len(found[0]):
                part.path("json").unlink(missing_ok=True)
                raise InputError(
                    f"{part.path('bin')}: does not hold what was written (did the machine crash?); this part was "
                    "discarded, run the command again"
                )
            yield found
        os.posix_fadvise(ids.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # its memory is better used for what comes


def remove_parts(folder: Path) -> None:
    """Remove what was made here from a folder of parts, and the folder if nothing else is in it."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if PART_FILE.fullmatch(path.name):
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
