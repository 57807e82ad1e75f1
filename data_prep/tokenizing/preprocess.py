"""C4 shards to ``PREFIX.bin/.idx``: tokenise many files in order, with any number of workers, to the same bytes.

What is written equals what the reference's preprocessing writes for the concatenation of the files
(docs/facts/reference.md a.4): one sequence per document, no EOD token, documents without any token left out.

Every file becomes parts of its own (``parts``) in ``PREFIX.parts/``, made in any order, on any machine; the dataset is
the parts one after the other. A run that is killed loses the parts it was working on.
"""

import itertools
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.corpus.c4 import require_files
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter, bin_path, idx_path, token_dtype
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.shard_parts import (
    Method,
    OnBadLine,
    Part,
    PartRecord,
    SourceFile,
    Tokens,
    blocks_of_part,
    read_record,
    source_of,
)
from data_prep.tokenizing.tokenize_workers import Finished, finished_in_order
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.allocator import keep_freed_memory
from stage.digest import md5_file
from stage.errors import InputError
from stage.lock import only_one_in
from stage.manifest import Record, is_current, manifest_path, record_of, write_manifest
from stage.publish import write_text
from stage.task_shard import TaskShard

DECOMPRESSION_SHARE = 0.05
"""Time to decompress a file against the time to tokenise it."""
MOST_STRIPES = 8


@dataclass(frozen=True)
class PreprocessResult:
    documents: int
    tokens: int
    skipped_lines: int
    wall_s: float


def preprocess(
    inputs: Sequence[Path],
    tokenizer: Path,
    output_prefix: Path,
    *,
    workers: int,
    on_bad_line: OnBadLine = "stop",
    shard: TaskShard | None = None,
    force: bool = False,
) -> PreprocessResult | None:
    """Tokenise ``inputs`` into ``output_prefix.bin/.idx`` and its manifest, or with ``shard`` into its files' parts.

    Returns None when the dataset is there already, from the same inputs, tokenizer and options. Raises InputError for
    a line that is not a JSON object with a text (naming file and line), a damaged file, or different work under the
    output's name.
    """
    started = time.monotonic()
    require_files([*inputs, tokenizer])
    if workers < 1:
        raise InputError(f"--workers {workers}: expected at least 1")
    model = Tokenizer(tokenizer)
    dtype = token_dtype(model.vocab_size)
    options = {"vocab_size": model.vocab_size, "dtype": dtype.name, "on_bad_line": on_bad_line}
    folder = output_prefix.with_name(output_prefix.name + ".parts")
    if not force and is_current(output_prefix, stage="preprocess", options=options, inputs=[*inputs, tokenizer]):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    _refuse_to_overwrite(output_prefix, folder, force)

    folder.mkdir(parents=True, exist_ok=True)
    encoder = _fast_tokenizer(model, dtype, tokenizer)
    method = Method(md5_file(tokenizer), dtype.name, on_bad_line)
    files = _parts_of_files(folder, _sources_of_shard(inputs, shard), method, workers)
    with _removed_after_failure(folder), finished_in_order(files, encoder, workers) as finished:
        if shard is not None:
            return _result_of_shard(finished, started)
        with only_one_in(folder, "it is being joined already"):
            result = _join(finished, output_prefix, tokenizer, options, started)
    shutil.rmtree(folder)
    return result


def _refuse_to_overwrite(prefix: Path, folder: Path, force: bool) -> None:
    existing = [path for path in (bin_path(prefix), idx_path(prefix)) if path.exists()]
    killed_before_its_manifest = folder.exists() and not manifest_path(prefix).exists()
    if existing and not force and not killed_before_its_manifest:
        raise InputError(
            f"{existing[0]} exists and was made from other inputs or options, or its manifest is missing; "
            "choose another --output-prefix or pass --force"
        )


def _fast_tokenizer(model: Tokenizer, dtype: np.dtype[Any], path: Path) -> FastTokenizer:
    """Says so where the model's texts have to be encoded whole; ``path`` is the model's, for the message."""
    keep_freed_memory()
    encoder = FastTokenizer(model, dtype)
    if encoder.why_slow is not None:
        print(f"{path}: {encoder.why_slow}; its texts are encoded whole, which is slow", file=sys.stderr)
    return encoder


def _sources_of_shard(inputs: Sequence[Path], shard: TaskShard | None) -> dict[int, SourceFile]:
    """The files of this task by their number in ``inputs``; without ``shard`` all of them."""
    numbers = range(len(inputs)) if shard is None else range(shard.index, len(inputs), shard.count)
    return {number: source_of(inputs[number]) for number in numbers}


@contextmanager
def _removed_after_failure(folder: Path) -> Iterator[None]:
    """Remove the folder of parts when the block fails before any part was made; else they are for the next run."""
    try:
        yield
    except BaseException:
        if all(path.suffix == ".lock" or path.name == "lock" for path in folder.iterdir()):
            shutil.rmtree(folder)
        raise


def _parts_of_files(folder: Path, sources: Mapping[int, SourceFile], method: Method, workers: int) -> list[list[Part]]:
    """The parts of each file: as an earlier run made them, else in as many stripes as keep all workers busy."""
    whole = {number: _made_earlier(folder, number, source, method) for number, source in sources.items()}
    stripes = _stripes(sum(parts is None for parts in whole.values()), workers)
    return [
        whole[number] or [Part(folder, number, source, method, stripe, stripes) for stripe in range(stripes)]
        for number, source in sources.items()
    ]


def _made_earlier(folder: Path, number: int, source: SourceFile, method: Method) -> list[Part] | None:
    for stripes in range(1, MOST_STRIPES + 1):
        parts = [Part(folder, number, source, method, stripe, stripes) for stripe in range(stripes)]
        if all(read_record(part) for part in parts):
            return parts
    return None


def _stripes(files: int, workers: int) -> int:
    """Stripes per file for the shortest time, if files are equally long: rounds of work times the work of a round."""
    return min(
        range(1, MOST_STRIPES + 1),
        key=lambda stripes: math.ceil(files * stripes / workers) * (1 / stripes + DECOMPRESSION_SHARE),
    )


def _result_of_shard(finished: Finished, started: float) -> PreprocessResult:
    """Wait for the parts, and count what is in them."""
    records = [record for parts in finished for _, record in parts]
    documents, tokens = (sum(block[axis] for record in records for block in record.blocks) for axis in (0, 1))
    return PreprocessResult(
        documents, tokens, sum(len(record.skipped) for record in records), time.monotonic() - started
    )


def _join(
    finished: Finished, prefix: Path, tokenizer: Path, options: dict[str, Any], started: float
) -> PreprocessResult:
    """The parts one after the other, and the manifest."""
    inputs: list[Record] = []
    skipped: list[str] = []
    writer = IndexedDatasetWriter(prefix, np.dtype(options["dtype"]))
    with writer:
        for parts in finished:
            for ids, sizes in _blocks_in_order(parts):
                writer.append(ids, sizes)
            inputs.append(_record_of_source(parts[0][1]))
            skipped += [message for _, message in sorted(line for _, record in parts for line in record.skipped)]
    outputs = [
        record_of(bin_path(prefix), bin_path(prefix).name, writer.bin_md5.hexdigest()),
        record_of(idx_path(prefix), idx_path(prefix).name, writer.idx_md5),
    ]
    if skipped:
        outputs.append(_write_skipped(prefix, skipped))
    write_manifest(
        prefix,
        stage="preprocess",
        options=options,
        inputs=[*inputs, record_of(tokenizer, str(tokenizer), md5_file(tokenizer))],
        outputs=outputs,
        packages=["numpy", "sentencepiece", "isal", "orjson"],
        started=started,
    )
    return PreprocessResult(writer.num_documents, writer.num_tokens, len(skipped), time.monotonic() - started)


def _record_of_source(part: PartRecord) -> Record:
    """The input file as it was when it was read."""
    return Record(part.source.path, 1, part.source.bytes, part.source_md5, part.source.mtime_ns)


def _write_skipped(prefix: Path, messages: Sequence[str]) -> Record:
    path = prefix.with_name(prefix.name + ".skipped.txt")
    write_text(path, "".join(f"{message}\n" for message in messages))
    return record_of(path, path.name, md5_file(path))


def _blocks_in_order(parts: Sequence[tuple[Part, PartRecord]]) -> Iterator[Tokens]:
    """The blocks of a file: block i is in stripe i modulo the number of stripes."""
    for blocks in itertools.cycle([blocks_of_part(part, record) for part, record in parts]):
        block = next(blocks, None)
        if block is None:
            return
        yield block
