"""C4 shards to ``PREFIX.bin/.idx``: tokenise many files in order, with any number of workers, to the same bytes.

What is written equals what the reference's preprocessing writes for the concatenation of the files (facts a.4): one
sequence per document, no EOD token, documents without any token left out.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from data_prep.c4 import Batch, HashedFile, batches_of, require_files, text_of
from data_prep.indexed_dataset import IndexedDatasetWriter, bin_path, idx_path, token_dtype
from data_prep.tokenizer import Tokenizer
from stage.digest import md5_file
from stage.errors import InputError
from stage.manifest import Record, is_current, record_of, write_manifest
from stage.processes import end_with_parent
from stage.progress import Advance, progress

BATCHES_IN_FLIGHT_PER_WORKER = 4


@dataclass(frozen=True)
class Result:
    documents: int
    tokens: int
    bytes: int
    """Size of the inputs on disk."""
    wall_s: float


def preprocess(
    inputs: Sequence[Path], tokenizer: Path, output_prefix: Path, *, workers: int, force: bool = False
) -> Result | None:
    """Tokenise ``inputs`` into ``output_prefix.bin/.idx`` and its manifest.

    Returns None when they are there already, from the same inputs and tokenizer. Raises InputError for a line that is
    not a JSON object with a text (naming file and line), a damaged file, or different work under the output's name.
    """
    started = time.monotonic()
    require_files([*inputs, tokenizer])
    if workers < 1:
        raise InputError(f"--workers {workers}: expected at least 1")
    vocab_size = Tokenizer(tokenizer).vocab_size
    dtype = token_dtype(vocab_size)
    options = {"vocab_size": vocab_size, "dtype": dtype.name}
    sources = [*inputs, tokenizer]
    if not force and is_current(output_prefix, stage="preprocess", options=options, inputs=sources):
        return None
    _refuse_to_overwrite(output_prefix, force)

    records: list[Record] = []
    total = sum(path.stat().st_size for path in inputs)
    writer = IndexedDatasetWriter(output_prefix, dtype)
    with writer, _encoders(tokenizer, workers) as pool, progress("tokenise", total, "bytes") as advance:
        waiting: Waiting = deque()
        for path in inputs:
            source = HashedFile(path)
            for batch in batches_of(path, source):
                waiting.append((batch, pool.submit(_encode, batch)))
                if len(waiting) >= BATCHES_IN_FLIGHT_PER_WORKER * workers:
                    _write_next(waiting, writer, advance)
            records.append(record_of(path, str(path), source.md5.hexdigest()))
            source.close()
        while waiting:
            _write_next(waiting, writer, advance)

    outputs = [
        record_of(bin_path(output_prefix), bin_path(output_prefix).name, writer.bin_md5.hexdigest()),
        record_of(idx_path(output_prefix), idx_path(output_prefix).name, writer.idx_md5.hexdigest()),
    ]
    records.append(record_of(tokenizer, str(tokenizer), md5_file(tokenizer)))
    write_manifest(
        output_prefix,
        stage="preprocess",
        options=options,
        inputs=records,
        outputs=outputs,
        packages=["numpy", "sentencepiece"],
        started=started,
    )
    return Result(writer.num_documents, writer.num_tokens, total, time.monotonic() - started)


@dataclass(frozen=True)
class Encoded:
    """Documents of one batch: their ids end to end and their lengths; empty ones are left out."""

    ids: npt.NDArray[np.int64]
    sizes: list[int]


Waiting = deque[tuple[Batch, "Future[Encoded]"]]


def _write_next(waiting: Waiting, writer: IndexedDatasetWriter, advance: Advance) -> None:
    batch, future = waiting.popleft()
    encoded = future.result()
    writer.add_documents(encoded.ids, encoded.sizes)
    advance(batch.read_bytes)


def _refuse_to_overwrite(prefix: Path, force: bool) -> None:
    existing = [path for path in (bin_path(prefix), idx_path(prefix)) if path.exists()]
    if existing and not force:
        raise InputError(
            f"{existing[0]} exists and was made from other inputs or options, or its manifest is missing; "
            "choose another --output-prefix or pass --force"
        )


@contextmanager
def _encoders(tokenizer: Path, workers: int) -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(workers, initializer=_start_encoder, initargs=(tokenizer,)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)  # not waiting races with the interpreter's own shutdown
            raise


_tokenizer: Tokenizer  # of this worker process


def _start_encoder(path: Path) -> None:
    global _tokenizer
    end_with_parent()
    _tokenizer = Tokenizer(path)


def _encode(batch: Batch) -> Encoded:
    ids: list[int] = []
    sizes: list[int] = []
    for number, line in enumerate(batch.lines, batch.first_line):
        where = f"{batch.path}:{number}"
        text = text_of(line, where)
        try:
            tokens = _tokenizer.encode(text)
        except UnicodeEncodeError as error:
            raise InputError(f"{where}: the text holds a lone surrogate, which no tokenizer can encode") from error
        if tokens:
            ids.extend(tokens)
            sizes.append(len(tokens))
    return Encoded(np.array(ids, dtype=np.int64), sizes)
