"""The part of a dataset that one input file gives: the ids of all its tokens, then the lengths of its documents.

Ids have the dataset's dtype and lengths are int32, both little-endian, as in ``.bin`` and ``.idx``. So a dataset is its
parts' ids one after the other, and an index of their lengths. :class:`PartMaker` makes a part, :func:`join_parts` the
dataset.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np

from data_prep.corpus.c4 import TEXT_KEY, BadLine, line_blocks, texts_of
from data_prep.corpus.input_files import HashedFile, InputFile, decompressed
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from foundation.errors import InputError
from foundation.outputs.output_parts import NewPart, OutputPart
from foundation.outputs.resumable_output import ResumableOutput
from foundation.progress import Meter, progress

BLOCK_BYTES = 1 << 22
"""Bytes of a part that are joined at once."""
LENGTH = np.dtype("<i4")

Tell = Callable[[float, float, float], None]
"""A function that is told of work done: bytes of the input, seconds of reading and of tokenising them. It may raise."""

OnBadLine = Literal["stop", "skip"]


@dataclass(frozen=True)
class Reading:
    """Options of reading documents from the files. The defaults are the benchmark's."""

    on_bad_line: OnBadLine = "stop"
    text_key: str = TEXT_KEY
    append_eod: bool = False
    """Put the tokenizer's end-of-sequence token after each document."""


@dataclass(frozen=True)
class PartFacts:
    """The facts of a part that the journal keeps."""

    source_md5: str
    """MD5 of the input file's bytes as they were read."""
    documents: int
    tokens: int
    skipped: Sequence[tuple[int, str]] = ()
    """Number of each skipped line, and the reason."""


def facts_of(part: OutputPart) -> PartFacts:
    """Read a part's facts from its line in the journal."""
    return msgspec.convert(part.facts, PartFacts)


class PartMaker:
    """Tokenise input files into parts of ``job``."""

    def __init__(self, job: ResumableOutput, encoder: FastTokenizer, reading: Reading) -> None:
        self._job, self._encoder, self._reading = job, encoder, reading
        self._end_of_document = encoder.plain.end_of_document() if reading.append_eod else None

    def make(self, name: str, file: InputFile, tell: Tell) -> None:
        """Make the part ``name`` of one file, and note it in the journal.

        Raises InputError, and leaves nothing, if the file is damaged or changes while it is read, and BadLine for a
        line that is no document, unless such lines are skipped.
        """
        path = self._job.new_path()
        try:
            with path.open("wb") as part, file.open() as source:
                facts, md5 = self._write(part, file, source, tell)
            if file.source_now() != file.source:
                raise InputError(f"{file}: changed while it was read; run the command again")
            self._job.add([NewPart(name, path, md5, asdict(facts))])
        finally:
            path.unlink(missing_ok=True)

    def _write(self, part: BinaryIO, file: InputFile, source: HashedFile, tell: Tell) -> tuple[PartFacts, str]:
        """Write the part; return its facts and its MD5."""
        digest = hashlib.md5(usedforsecurity=False)
        skipped: list[tuple[int, str]] = []
        lengths: list[np.ndarray[Any, Any]] = []
        tokens = reported_bytes = 0

        def write(array: np.ndarray[Any, Any]) -> None:
            try:
                part.write(array.data)
            except OSError as error:  # a full disk; the error itself does not name the file
                raise OSError(error.errno, error.strerror, part.name) from error
            digest.update(array.data)

        with decompressed(str(file), source) as text:
            blocks = line_blocks(str(file), text)
            started_at_s = time.perf_counter()
            while (block := next(blocks, None)) is not None:
                read_at_s = time.perf_counter()
                ids, sizes = self._encoder.encode_documents(self._documents(block, file, skipped))
                # The reference leaves documents without tokens out (docs/facts/reference.md a.4).
                sizes = sizes[sizes > 0].astype(LENGTH)
                if self._end_of_document is not None:
                    ids = np.insert(ids, np.cumsum(sizes), self._end_of_document)
                    sizes += 1
                write(ids)
                lengths.append(sizes)
                tokens += len(ids)
                finished_at_s = time.perf_counter()
                tell(source.position - reported_bytes, read_at_s - started_at_s, finished_at_s - read_at_s)
                reported_bytes, started_at_s = source.position, finished_at_s
        for sizes in lengths:
            write(sizes)
        return PartFacts(source.md5.hexdigest(), sum(map(len, lengths)), tokens, skipped), digest.hexdigest()

    def _documents(self, block: tuple[int, bytes], file: InputFile, skipped: list[tuple[int, str]]) -> list[bytes]:
        """Return the documents of a block, and add the lines that hold none to ``skipped``."""
        documents = []
        for number, text in texts_of(*block, self._reading.text_key):
            if isinstance(text, bytes):
                documents.append(text)
            elif self._reading.on_bad_line == "stop":
                raise BadLine(f"{file}:{number}: {text}")
            else:
                skipped.append((number, text))
        return documents


def join_parts(job: ResumableOutput, names: Sequence[str], dtype: np.dtype[Any]) -> IndexedDatasetWriter:
    """Write the dataset of the finished parts ``names``, in this order, below the folder of ``job``.

    Returns the writer, which has the sums of the files. Raises InputError for a part that was damaged, for example by
    a crash of the machine; such a part is removed, so that the same command makes it again.
    """
    parts = [job.done[name] for name in names]
    with (
        progress("join", sum(part.bytes for part in parts), "bytes", files=len(parts)) as meter,
        ThreadPoolExecutor(1) as hashing,
        IndexedDatasetWriter(job.new_path(), dtype) as writer,
    ):
        for part in parts:
            _append(writer, job.path(part.name), part, hashing, meter)
            meter(0, files=1)
    return writer


def _append(
    writer: IndexedDatasetWriter, path: Path, part: OutputPart, hashing: ThreadPoolExecutor, meter: Meter
) -> None:
    """Copy one part. A thread computes its MD5 while the dataset's is computed."""
    facts, digest = facts_of(part), hashlib.md5(usedforsecurity=False)
    waiting: list[Future[None]] = []

    def blocks(dtype: np.dtype[Any], count: int) -> Iterator[np.ndarray[Any, Any]]:
        while len(block := np.fromfile(file, dtype, min(count, BLOCK_BYTES // dtype.itemsize))):
            if waiting:
                waiting.pop().result()  # so that no more than two blocks are in memory
            waiting.append(hashing.submit(digest.update, block.data))
            yield block
            count -= len(block)
            meter(block.nbytes)

    with path.open("rb", buffering=0) as file:
        for ids in blocks(writer.dtype, facts.tokens):
            writer.append(ids, np.empty(0, LENGTH))
        for lengths in blocks(LENGTH, facts.documents):
            writer.append(np.empty(0, writer.dtype), lengths)
        hashing.submit(digest.update, file.read(1)).result()  # nothing, unless the part is longer than it was
    if digest.hexdigest() != part.md5:
        path.unlink()
        raise InputError(
            f"{path}: not the bytes that were written (did the machine crash?); it was removed, run the command again"
        )
