"""Blocks of documents to token ids, written as a part."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np

from data_prep.corpus.text_blocks import Block, texts_of_block
from data_prep.preprocessing.shard_parts import BlockRecord, Method, Part, PartRecord, crc_of
from data_prep.preprocessing.user_filter import UserFilter
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from stage.errors import InputError
from stage.publish import own_partial_path, sync_all


class PartWriter:
    """Takes a part's blocks one after the other, in order."""

    def __init__(
        self, part: Part, encoder: FastTokenizer, user_filter: UserFilter | None, ids: BinaryIO, sizes: BinaryIO
    ):
        self._part, self._encoder, self._filter = part, encoder, user_filter
        self._path = part.input
        self._ids, self._sizes = ids, sizes
        self._blocks: list[BlockRecord] = []
        self._skipped: list[tuple[int, str]] = []
        self._filtered = 0

    def add(self, block: Block) -> None:
        """Tokenise a block. Raises BadLine, unless such lines are to be skipped."""
        ids, sizes = self._encoder.encode_documents(self._documents(block))
        # The reference leaves documents without tokens out (docs/facts/reference.md a.4).
        lengths = sizes[sizes > 0].astype(np.int32)
        if self._part.method.end_of_document is not None:
            ids = np.insert(ids, np.cumsum(lengths), self._part.method.end_of_document)
            lengths += 1
        self._ids.write(ids.data)
        self._sizes.write(lengths.data)
        self._blocks.append(BlockRecord(len(lengths), len(ids), crc_of(ids, lengths)))

    def record(self, source_bytes: int, source_md5: str) -> PartRecord:
        """Of all blocks."""
        return PartRecord(
            self._part.source,
            self._part.method,
            source_bytes,
            source_md5,
            self._blocks,
            self._skipped,
            self._filtered,
        )

    def _documents(self, block: Block) -> list[bytes]:
        method: Method = self._part.method
        numbers, documents = [], []
        for number, text in texts_of_block(block, self._path, method.text_key):
            if isinstance(text, bytes):
                numbers.append(number)
                documents.append(text)
            elif method.on_bad_line == "stop":
                raise text
            else:
                self._skipped.append((number, str(text).removeprefix(f"{self._path}:{number}: ")))
        if self._filter is None:
            return documents
        kept = self._filter.apply(documents, numbers, self._path)
        self._filtered += len(documents) - len(kept)
        return kept


@contextmanager
def writing_part(part: Part, encoder: FastTokenizer, user_filter: UserFilter | None) -> Iterator[PartWriter]:
    """Yield a part's writer; its two files are published when the block ends well."""
    finals = [part.path("bin"), part.path("sizes")]
    partials = [own_partial_path(path) for path in finals]
    try:
        with partials[0].open("wb") as ids, partials[1].open("wb") as sizes:
            yield PartWriter(part, encoder, user_filter, ids, sizes)
        sync_all(partials)
        for path, partial in zip(finals, partials, strict=True):
            os.replace(partial, path)  # the record, which comes after them, brings all three names to the disk
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"{part.path('bin')}: no space left on the device; what is finished stays, run the command again"
        ) from error
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)
