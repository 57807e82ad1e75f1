"""Tokenising one input file, or a stripe of its blocks, to a part: what a killed run does not have to do again.

A part is ``NAME.bin`` (token ids), ``NAME.sizes`` (int32 lengths of documents) and ``NAME.json`` (the record: what it
was made from, and how), published in this order: where the record is, the part is whole.

A file that several workers share is divided into stripes: stripe k of n takes the blocks k, k + n, … All of them
decompress the whole file, which takes a twentieth of the time that tokenising it does.
"""

import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_prep.corpus.c4 import BadLine, HashedFile, LineBlock, blocks_of, utf8_of
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from stage.errors import InputError
from stage.lock import only_one_in
from stage.progress import Advance
from stage.publish import published_file, write_text

OnBadLine = Literal["stop", "skip"]
Tokens = tuple[npt.NDArray[Any], npt.NDArray[np.int32]]
"""Token ids of documents end to end, and the documents' lengths."""


@dataclass(frozen=True)
class SourceFile:
    """An input file as it was when it was read."""

    path: str
    bytes: int
    mtime_ns: int


@dataclass(frozen=True)
class Method:
    """What the bytes of a part depend on besides its file."""

    tokenizer_md5: str
    dtype: str
    on_bad_line: OnBadLine


@dataclass(frozen=True)
class Part:
    """Stripe ``stripe`` of ``stripes`` of the input file number ``number``."""

    folder: Path
    number: int
    source: SourceFile
    method: Method
    stripe: int
    stripes: int

    def path(self, suffix: str) -> Path:
        return self.folder / f"{self.number:05d}.stripe-{self.stripe}-of-{self.stripes}.{suffix}"


@dataclass(frozen=True)
class PartRecord:
    """What ``NAME.json`` holds."""

    source: SourceFile
    method: Method
    source_md5: str
    blocks: list[tuple[int, int]]
    """Documents and tokens of each block of this stripe."""
    skipped: list[tuple[int, str]]
    """Number of each line that was left out, and the message, which begins with file and line."""


def source_of(path: Path) -> SourceFile:
    stat = path.stat()
    return SourceFile(str(path), stat.st_size, stat.st_mtime_ns)


def read_record(part: Part) -> PartRecord | None:
    """The record of a finished part; None if it is not there or was made from something else or otherwise."""
    try:
        fields = json.loads(part.path("json").read_text(encoding="utf-8"))
        record = PartRecord(
            SourceFile(**fields["source"]),
            Method(**fields["method"]),
            fields["source_md5"],
            [(documents, tokens) for documents, tokens in fields["blocks"]],
            [(line, message) for line, message in fields["skipped"]],
        )
        documents, tokens = (sum(block[axis] for block in record.blocks) for axis in (0, 1))
        sizes = (part.path("bin").stat().st_size, part.path("sizes").stat().st_size)
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    whole = sizes == (tokens * np.dtype(part.method.dtype).itemsize, documents * 4)
    return record if whole and (record.source, record.method) == (part.source, part.method) else None


def make_part(part: Part, tokenizer: FastTokenizer, advance: Advance) -> None:
    """Tokenise one stripe of a file, unless somebody else has meanwhile. ``advance`` is told the bytes that are done.

    Raises InputError for a damaged file and, unless they are to be skipped, for a bad line; nothing is left then.
    """
    with only_one_in(part.folder, f"another task tokenises {part.source.path}", name=part.path("lock").name):
        if read_record(part) is None:
            _make_part(part, tokenizer, advance)


def _make_part(part: Part, tokenizer: FastTokenizer, advance: Advance) -> None:
    path = Path(part.source.path)
    blocks: list[tuple[int, int]] = []
    skipped: list[tuple[int, str]] = []
    source = HashedFile(path)
    try:
        with (
            published_file(part.path("bin")) as bin_partial,
            published_file(part.path("sizes")) as sizes_partial,
            bin_partial.open("wb") as bin_file,
            sizes_partial.open("wb") as sizes_file,
        ):
            for number, block in enumerate(blocks_of(path, source)):
                if number % part.stripes == part.stripe:
                    documents = _texts_of_block(path, block, part.method.on_bad_line, skipped)
                    ids, sizes = tokenizer.encode_documents(documents)
                    # The reference leaves documents without tokens out (docs/facts/reference.md a.4).
                    sizes = sizes[sizes > 0]
                    bin_file.write(ids.data)
                    sizes_file.write(sizes.astype("<i4").data)
                    blocks.append((len(sizes), len(ids)))
                advance(block.read_bytes // part.stripes)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise InputError(
            f"{part.path('bin')}: no space left on the device; what is finished stays, run the command again"
        ) from error
    finally:
        source.close()
    if source_of(path) != part.source:
        raise InputError(f"{path}: changed while it was read; run the command again")
    record = PartRecord(part.source, part.method, source.md5.hexdigest(), blocks, skipped)
    write_text(part.path("json"), json.dumps(dataclasses.asdict(record)) + "\n")


def _texts_of_block(
    path: Path, block: LineBlock, on_bad_line: OnBadLine, skipped: list[tuple[int, str]]
) -> list[bytes]:
    documents = []
    for number, line in enumerate(block.lines(), block.first_line):
        try:
            documents.append(utf8_of(line, f"{path}:{number}"))
        except BadLine as error:
            if on_bad_line == "stop":
                raise
            skipped.append((number, str(error)))
    return documents


def blocks_of_part(part: Part, record: PartRecord) -> Iterator[Tokens]:
    """The blocks of a finished part, read one after the other, for the last time."""
    with part.path("bin").open("rb", buffering=0) as ids, part.path("sizes").open("rb", buffering=0) as sizes:
        for documents, tokens in record.blocks:
            yield np.fromfile(ids, part.method.dtype, tokens), np.fromfile(sizes, "<i4", documents)
        os.posix_fadvise(ids.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # its memory is better used for what comes
