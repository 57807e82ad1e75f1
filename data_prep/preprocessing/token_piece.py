"""The piece of a dataset that one input file gives: the ids of all its tokens, then the lengths of its documents.

Ids have the dataset's dtype and lengths are int32, both little-endian, as in ``.bin`` and ``.idx``; so a dataset is its
pieces' ids one after the other, and an index of their lengths.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np

from data_prep.corpus.c4 import TEXT_KEY, BadLine, line_blocks, texts_of
from data_prep.corpus.decompress import decompressed
from data_prep.corpus.input_files import HashedFile, InputFile
from data_prep.preprocessing.shared_meter import DOING, SharedMeter
from data_prep.tokenizing.any_tokenizer import DocumentEncoder
from stage.errors import InputError
from stage.outputs.resumable_output import NewPiece, Piece, ResumableOutput

OnBadLine = Literal["stop", "skip"]


@dataclass(frozen=True)
class Reading:
    """Options of reading documents from the files. The defaults are the benchmark's."""

    on_bad_line: OnBadLine = "stop"
    text_key: str = TEXT_KEY
    append_eod: bool = False
    """Put the tokenizer's end-of-sequence token after each document."""


@dataclass(frozen=True)
class PieceFacts:
    """The facts of a piece that the journal keeps."""

    source_md5: str
    """MD5 of the input file's bytes as they were read."""
    documents: int
    tokens: int
    skipped: Sequence[tuple[int, str]] = ()
    """Number of each skipped line, and the reason."""


def facts_of(piece: Piece) -> PieceFacts:
    """Read a piece's facts from its line in the journal."""
    return msgspec.convert(piece.facts, PieceFacts)


class PieceMaker:
    """Tokenise input files into pieces of ``job``."""

    def __init__(self, job: ResumableOutput, encoder: DocumentEncoder, reading: Reading) -> None:
        self._job, self._encoder, self._reading = job, encoder, reading
        self._end = encoder.plain.end_of_document() if reading.append_eod else None

    def make(self, name: str, file: InputFile, meter: SharedMeter) -> None:
        """Make the piece ``name`` of one file, and note it in the journal.

        Raises InputError, and leaves nothing, if the file is damaged or changes while it is read, and BadLine for a
        line that is no document, unless such lines are skipped.
        """
        path = self._job.new_path()
        try:
            with path.open("wb") as piece, file.open() as source:
                facts, md5 = self._write(piece, file, source, meter)
            if file.source_now() != file.source:
                raise InputError(f"{file}: changed while it was read; run the command again")
            self._job.add([NewPiece(name, path, md5, asdict(facts))])
        finally:
            path.unlink(missing_ok=True)

    def _write(
        self, piece: BinaryIO, file: InputFile, source: HashedFile, meter: SharedMeter
    ) -> tuple[PieceFacts, str]:
        """Write the piece; return its facts and its MD5."""
        digest = hashlib.md5(usedforsecurity=False)
        skipped: list[tuple[int, str]] = []
        lengths: list[np.ndarray[Any, Any]] = []
        tokens = told = 0

        def write(array: np.ndarray[Any, Any]) -> None:
            try:
                piece.write(array.data)
            except OSError as error:  # a full disk; the error itself does not name the file
                raise OSError(error.errno, error.strerror, piece.name) from error
            digest.update(array.data)

        reading, tokenising = DOING
        with decompressed(str(file), source) as text:
            blocks = line_blocks(str(file), text)
            while True:
                with meter.doing(reading):
                    block = next(blocks, None)
                if block is None:
                    break
                with meter.doing(tokenising):
                    ids, sizes = self._encoder.encode_documents(self._documents(block, file, skipped))
                    # The reference leaves documents without tokens out (docs/facts/reference.md a.4).
                    sizes = sizes[sizes > 0].astype("<i4")
                    if self._end is not None:
                        ids = np.insert(ids, np.cumsum(sizes), self._end)
                        sizes += 1
                    write(ids)
                lengths.append(sizes)
                tokens += len(ids)
                meter(source.position - told)
                told = source.position
        for sizes in lengths:
            write(sizes)
        return PieceFacts(source.md5.hexdigest(), sum(map(len, lengths)), tokens, skipped), digest.hexdigest()

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
