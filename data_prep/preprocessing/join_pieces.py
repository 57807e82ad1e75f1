"""Join all pieces, one after the other, to one dataset; each is checked while it is read."""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.preprocessing.token_piece import facts_of
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter
from stage.errors import InputError
from stage.outputs.resumable_output import Piece, ResumableOutput
from stage.progress import Meter, progress

BLOCK_BYTES = 1 << 22
LENGTH = np.dtype("<i4")


def join_pieces(job: ResumableOutput, names: Sequence[str], dtype: np.dtype[Any]) -> IndexedDatasetWriter:
    """Write the dataset of the finished pieces ``names``, in this order, below the folder of ``job``.

    Returns the writer, which knows what it has written. Raises InputError for a piece that was damaged, for example by
    a crash of the machine; such a piece is removed, so that the same command makes it again.
    """
    pieces = [job.done[name] for name in names]
    with (
        progress("join", sum(piece.bytes for piece in pieces), "bytes", files=len(pieces)) as meter,
        ThreadPoolExecutor(1) as hashing,
        IndexedDatasetWriter(job.new_path(), dtype) as writer,
    ):
        for piece in pieces:
            _append(writer, job.path(piece.name), piece, hashing, meter)
            meter(0, files=1)
    return writer


def _append(writer: IndexedDatasetWriter, path: Path, piece: Piece, hashing: ThreadPoolExecutor, meter: Meter) -> None:
    """Copy one piece. A thread computes its MD5 while the dataset's is computed."""
    facts, digest = facts_of(piece), hashlib.md5(usedforsecurity=False)
    waiting: list[Future[None]] = []

    def blocks(dtype: np.dtype[Any], count: int) -> Iterator[np.ndarray[Any, Any]]:
        while len(found := np.fromfile(file, dtype, min(count, BLOCK_BYTES // dtype.itemsize))):
            if waiting:
                waiting.pop().result()  # so that no more than two blocks are in memory
            waiting.append(hashing.submit(digest.update, found.data))
            yield found
            count -= len(found)
            meter(found.nbytes)

    with path.open("rb", buffering=0) as file:
        for ids in blocks(writer.dtype, facts.tokens):
            writer.append(ids, np.empty(0, LENGTH))
        for lengths in blocks(LENGTH, facts.documents):
            writer.append(np.empty(0, writer.dtype), lengths)
        hashing.submit(digest.update, file.read(1)).result()  # nothing, unless the piece is longer than it was
    if digest.hexdigest() != piece.md5:
        path.unlink()
        raise InputError(
            f"{path}: does not hold what was written (did the machine crash?); it was removed, run the command again"
        )
