"""C4 shards to ``PREFIX.bin/.idx``: tokenise many files in order, with any number of workers, to the same bytes.

What is written equals what the reference's preprocessing writes for the concatenation of the files
(docs/facts/reference.md a.4): one sequence per document, no EOD token, documents without any token left out.

Every file becomes parts of its own (``shard_parts``) in ``PREFIX.parts/``, made in any order, on any machine; the
dataset is the parts one after the other (``join_parts``). A run that is killed loses the files it was working on.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.corpus.c4 import TEXT_KEY
from data_prep.corpus.input_files import STDIN, InputFile, SourceFile, require_files, source_of
from data_prep.corpus.named_inputs import as_input, described_inputs, local_of
from data_prep.preprocessing.join_parts import join_parts, require_output
from data_prep.preprocessing.listed_inputs import listed_sums, numbers_of, with_listed_sums
from data_prep.preprocessing.shard_parts import Method, OnBadLine, Part, made_earlier, remove_parts, stripes_there
from data_prep.preprocessing.tokenize_workers import Finished, finished_in_order
from data_prep.preprocessing.user_filter import FilterSource
from data_prep.preprocessing.worker_shares import workers_per_file
from data_prep.token_files.indexed_dataset import token_dtype
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.allocator import keep_freed_memory
from stage.digest import md5_file
from stage.errors import InputError
from stage.limits.sizes import require_workers
from stage.lock import gone, only_one_in
from stage.manifest import is_current, manifest_path
from stage.publish import beside
from stage.task_shard import TaskShard


@dataclass(frozen=True)
class Reading:
    """What is taken from the files, and how. The defaults are the benchmark's."""

    on_bad_line: OnBadLine = "stop"
    text_key: str = TEXT_KEY
    append_eod: bool = False
    """Put the tokenizer's end-of-sequence token behind each document."""
    filter: FilterSource | None = None

    def recorded(self) -> dict[str, Any]:
        """For the manifest: what is the default only where it always was recorded."""
        recorded: dict[str, Any] = {"on_bad_line": self.on_bad_line}
        if self.text_key != TEXT_KEY:
            recorded["text_key"] = self.text_key
        if self.append_eod:
            recorded["append_eod"] = True
        if self.filter is not None:
            recorded["filter"] = self.filter.identity
        return recorded


@dataclass(frozen=True)
class PreprocessResult:
    documents: int
    tokens: int
    skipped_lines: int
    filtered_documents: int
    """That the user's filter left out."""
    wall_s: float


def preprocess(
    inputs: Sequence[InputFile],
    tokenizer: Path,
    output_prefix: Path,
    *,
    workers: int,
    reading: Reading = Reading(),
    md5_list: Path | None = None,
    shard: TaskShard | None = None,
    force: bool = False,
) -> PreprocessResult | None:
    """Tokenise ``inputs`` into ``output_prefix.bin/.idx`` and its manifest, or with ``shard`` into its files' parts.

    Returns None when the dataset is there already, from the same inputs, tokenizer and options. Raises InputError for
    a line that is not a document (naming file and line), a damaged file, one whose MD5 is not that in ``md5_list``, no
    document at all, or different work under the output's name.
    """
    started = time.monotonic()
    _require_inputs(inputs, tokenizer, shard)
    sums = {} if md5_list is None else listed_sums(md5_list, inputs)
    require_workers(workers)
    model = Tokenizer(tokenizer)
    dtype = token_dtype(model.vocab_size)
    options = {"vocab_size": model.vocab_size, "dtype": dtype.name, **reading.recorded()}
    folder = beside(output_prefix, ".parts")
    inputs = described_inputs(inputs, numbers_of(len(inputs), None if manifest_path(output_prefix).exists() else shard))
    known = [as_input(path) for path in inputs]
    anew = force and shard is None  # a task of several that comes after the join has nothing to do
    if not anew and is_current(output_prefix, stage="preprocess", options=options, inputs=[*known, tokenizer]):
        remove_parts(folder)
        return None
    require_output(output_prefix, folder, [*local_of(inputs), tokenizer], force=force)

    end = model.end_of_document() if reading.append_eod else None
    folder.mkdir(parents=True, exist_ok=True)
    encoder = _fast_tokenizer(model, dtype, tokenizer)
    method = Method(
        md5_file(tokenizer),
        dtype.name,
        reading.on_bad_line,
        reading.text_key,
        end,
        None if reading.filter is None else reading.filter.identity,
    )
    files = _parts_of_files(folder, _inputs_of_shard(inputs, shard), method, workers)
    with _removed_after_failure(folder), finished_in_order(files, encoder, reading.filter, workers) as finished:
        checked = with_listed_sums(finished, sums)
        if shard is not None:
            return _result_of_shard(checked, started)
        with only_one_in(folder, "it is being joined already") as claim:
            joined = join_parts(checked, output_prefix, folder, tokenizer, options, claim, started)
    remove_parts(folder)
    return PreprocessResult(**asdict(joined), wall_s=time.monotonic() - started)


def _require_inputs(inputs: Sequence[InputFile], tokenizer: Path, shard: TaskShard | None) -> None:
    streams = [path for path in inputs if str(path) == STDIN]
    if streams and (len(inputs) > 1 or shard is not None):
        raise InputError("--input -: standard input is read once, so it is the only input, and of one task")
    require_files([*(path for path in local_of(inputs) if path not in streams), tokenizer])


def _fast_tokenizer(model: Tokenizer, dtype: np.dtype[Any], path: Path) -> FastTokenizer:
    """Says so where the model's texts have to be encoded whole; ``path`` is the model's, for the message."""
    keep_freed_memory()
    encoder = FastTokenizer(model, dtype)
    if encoder.why_slow is not None:
        print(f"{path}: {encoder.why_slow}; its texts are encoded whole, which is slow", file=sys.stderr)
    return encoder


def _inputs_of_shard(inputs: Sequence[InputFile], shard: TaskShard | None) -> dict[int, tuple[InputFile, SourceFile]]:
    """The files of this task, and as they are now, by their number in ``inputs``; without ``shard`` all of them."""
    return {number: (inputs[number], source_of(inputs[number])) for number in numbers_of(len(inputs), shard)}


@contextmanager
def _removed_after_failure(folder: Path) -> Iterator[None]:
    """Remove the folder when the block fails and no part is whole; parts are for the next run. Who works there has a
    claim there. Raises InputError where somebody else has removed it."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, FileNotFoundError) and not folder.exists():
            raise gone(folder) from None
        if folder.is_dir() and not any(path.suffix in (".json", ".owner") for path in folder.iterdir()):
            remove_parts(folder)
        raise


def _parts_of_files(
    folder: Path, files: Mapping[int, tuple[InputFile, SourceFile]], method: Method, workers: int
) -> list[list[Part]]:
    """The parts of each file: as an earlier run made them, else in as many stripes as end all soonest."""
    there = stripes_there(folder)
    found: dict[int, list[Part]] = {}
    for number in files:
        for stripes in there.get(number, []):
            parts = _stripes(folder, number, files[number], method, stripes)
            if made_earlier(parts):
                found[number] = parts
                break
    missing = [number for number in files if number not in found]
    sizes = [max(1, files[number][1].bytes) for number in missing]
    for number, stripes in zip(missing, workers_per_file(sizes, workers), strict=True):
        found[number] = _stripes(folder, number, files[number], method, stripes)
    return [found[number] for number in files]


def _stripes(folder: Path, number: int, file: tuple[InputFile, SourceFile], method: Method, stripes: int) -> list[Part]:
    return [Part(folder, number, *file, method, stripe, stripes) for stripe in range(stripes)]


def _result_of_shard(finished: Finished, started: float) -> PreprocessResult:
    """Wait for the parts, and count what is in them."""
    records = [record for parts in finished for _, record in parts]
    blocks = [block for record in records for block in record.blocks]
    return PreprocessResult(
        documents=sum(block.documents for block in blocks),
        tokens=sum(block.tokens for block in blocks),
        skipped_lines=sum(len(record.skipped) for record in records),
        filtered_documents=sum(record.filtered for record in records),
        wall_s=time.monotonic() - started,
    )
