"""All pieces one after the other, checked while they are read, as one dataset."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.preprocessing.token_piece import facts_of
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter, bin_path, idx_path
from stage.errors import InputError
from stage.progress import Meter, progress
from stage.resumable_output import Piece, ResumableOutput

BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class Joined:
    """A dataset that is written and not published yet."""

    prefix: Path
    bin_md5: str
    idx_md5: str
    documents: int
    tokens: int


def join_pieces(job: ResumableOutput, names: Sequence[str], dtype: np.dtype[Any]) -> Joined:
    """Write the dataset of the finished pieces ``names``, in this order, below the folder of ``job``.

    Raises InputError for a piece that does not hold what was written (after a crash of the machine); such a piece is
    removed, so that the same command makes it again.
    """
    pieces = [job.done[name] for name in names]
    prefix = job.new_path()
    try:
        with (
            progress("join", sum(piece.bytes for piece in pieces), "bytes", files=len(pieces)) as meter,
            ThreadPoolExecutor(1) as hashing,
            IndexedDatasetWriter(prefix, dtype) as writer,
        ):
            for piece in pieces:
                _append(writer, job.path(piece.name), piece, hashing, meter)
                meter(0, files=1)
        return Joined(prefix, writer.bin_md5.hexdigest(), writer.idx_md5, writer.num_documents, writer.num_tokens)
    except BaseException:
        for path in (bin_path(prefix), idx_path(prefix)):
            path.unlink(missing_ok=True)
        raise


def _append(writer: IndexedDatasetWriter, path: Path, piece: Piece, hashing: ThreadPoolExecutor, meter: Meter) -> None:
    """Copy one piece. Its MD5 is made by a thread, beside that of the dataset."""
    facts, digest = facts_of(piece), hashlib.md5(usedforsecurity=False)
    no_ids, no_lengths = np.empty(0, writer.dtype), np.empty(0, "<i4")
    hashed: Future[None] = Future()
    hashed.set_result(None)
    with path.open("rb", buffering=0) as file:
        left = facts.tokens
        while len(ids := np.fromfile(file, writer.dtype, min(left, BLOCK_BYTES // writer.dtype.itemsize))):
            hashed.result()  # so that no more than two blocks are in memory
            hashed = hashing.submit(digest.update, ids.data)
            writer.append(ids, no_lengths)
            left -= len(ids)
            meter(ids.nbytes)
        lengths = np.fromfile(file, "<i4")
    hashed.result()
    digest.update(lengths.data)
    writer.append(no_ids, lengths)
    meter(lengths.nbytes)
    if digest.hexdigest() != piece.md5:
        path.unlink()
        raise InputError(
            f"{path}: does not hold what was written (did the machine crash?); it was removed, run the command again"
        )
