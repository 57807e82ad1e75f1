"""Make ``PREFIX.bin/.idx`` from C4 files: many files in order, tokenised by any number of workers and machines.

The dataset equals the output of the reference's preprocessing for the concatenated files (docs/facts/reference.md a.4):
one sequence per document, no EOD token, documents without any token left out.

Each file gives a part (``token_part``), made in any order; the dataset is the parts one after the other
(``join_parts``). ``foundation.outputs.resumable_output`` keeps the parts of a command that is killed, and of several
machines.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.corpus.c4 import TEXT_KEY
from data_prep.corpus.input_files import InputFile, InputOptions, Location, describe_inputs, local_paths, require_files
from data_prep.preprocessing.disk_space import full_disk_told, require_space, warn_of_space
from data_prep.preprocessing.earlier_parts import choose_parts, with_recorded_identities
from data_prep.preprocessing.token_part import OnBadLine, PartFacts, PartMaker, Reading, facts_of, join_parts
from data_prep.preprocessing.tokenize_workers import make_parts
from data_prep.token_files.indexed_dataset import bin_path, idx_path, token_dtype
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.tokenizer import AnyTokenizer, open_tokenizer
from foundation.errors import InputError
from foundation.file_formats.md5_list import read_list
from foundation.outputs.digest import md5_file, md5_text
from foundation.outputs.manifest import Recipe, Source, read_manifest, versions_of
from foundation.outputs.publish import sibling, write_text
from foundation.outputs.resumable_output import ResumableOutput, resumable_output
from foundation.outputs.shards import Shard, parse_shard
from foundation.plain_text import counted
from foundation.progress import progress
from foundation.sizes import require_workers
from foundation.this_machine import count_cores

STAGE = "preprocess"
BYTES_VERSION = 1
"""Version of the bytes that the command makes of the same inputs and options: raise it with any change of token ids or
layout, so that outputs and parts of another version are not mixed."""
BENCHMARK = Reading()


@dataclass(frozen=True)
class PreprocessResult:
    """Figures of the dataset, or of a shard's parts, that a call has made."""

    documents: int
    tokens: int
    skipped_lines: int
    wall_s: float


def skipped_path(prefix: Path) -> Path:
    """Return the path of the list of skipped lines."""
    return sibling(prefix, ".skipped.txt")


def preprocess(
    inputs: Sequence[Location],
    tokenizer: Path,
    output_prefix: Path,
    *,
    workers: int,
    reading: Reading = BENCHMARK,
    md5_list: Path | None = None,
    bandwidth_limit: str | None = None,
    shard: Shard | None = None,
    force: bool = False,
) -> PreprocessResult | None:
    """Tokenise ``inputs`` into ``output_prefix.bin/.idx`` and its manifest, or with ``shard`` its share of the parts.

    Returns None if the dataset is already there, from the same inputs, tokenizer and options. Raises InputError for a
    line that is not a document (naming file and line), a damaged file, a file whose MD5 differs from ``md5_list``, no
    document at all, a folder as the prefix, or another output under the same name.
    """
    started = time.monotonic()
    require_workers(workers)
    if output_prefix.is_dir():
        raise InputError(
            f"--output-prefix {output_prefix}: a folder; expected the beginning of file names, such as "
            f"{output_prefix / 'c4_text_document'}"
        )
    require_files([tokenizer])
    model = open_tokenizer(tokenizer)
    files = describe_inputs(inputs, bandwidth_limit=bandwidth_limit, at_once=workers)
    sums = None if md5_list is None else _listed_sums(md5_list, files)
    dtype = token_dtype(model.vocab_size)
    recipe = _recipe(files, model, dtype, reading)
    if not force:
        recipe = with_recorded_identities(recipe, files, read_manifest(output_prefix))
    names = [_part_name(number, file) for number, file in enumerate(files)]
    paths = [bin_path(output_prefix), idx_path(output_prefix), skipped_path(output_prefix)]
    local = [*local_paths(files), tokenizer]
    with (
        full_disk_told(output_prefix),
        resumable_output(
            output_prefix, recipe, paths=paths, inputs=local, shard=shard, force=force, by_input=True
        ) as job,
    ):
        if job is None:
            manifest = read_manifest(output_prefix)
            _require_listed(files, [] if manifest is None else manifest.facts.get("input_md5", []), sums)
            return None
        encoder = FastTokenizer(model, dtype)
        if encoder.why_slow is not None:
            print(f"{tokenizer}: {encoder.why_slow}; its texts are encoded whole, which is slow", file=sys.stderr)
        inputs_of_parts = list(zip(names, files, strict=True))
        inputs_of_parts = inputs_of_parts if shard is None else shard.of(inputs_of_parts)
        names, files = [name for name, _ in inputs_of_parts], [file for _, file in inputs_of_parts]
        file_by_part = dict(zip(choose_parts(job, names, files), files, strict=True))
        missing_files = {name: file_by_part[name] for name in job.missing(file_by_part)}
        warn_of_space(output_prefix.parent, list(missing_files.values()), dtype.itemsize)
        with progress(
            "tokenise", sum(file.source.bytes for file in file_by_part.values()), "bytes", files=len(file_by_part)
        ) as meter:
            finished_bytes = [file.source.bytes for name, file in file_by_part.items() if name not in missing_files]
            meter.done_before(sum(finished_bytes), files=len(finished_bytes))
            make_parts(PartMaker(job, encoder, reading), missing_files, workers, meter)
        job.reload()  # workers have noted their parts themselves
        facts = [facts_of(job.done[name]) for name in file_by_part]
        _require_listed(list(file_by_part.values()), [part_facts.source_md5 for part_facts in facts], sums)
        if shard is None:
            _join_and_publish(job, file_by_part, facts, dtype)
    return PreprocessResult(
        sum(part_facts.documents for part_facts in facts),
        sum(part_facts.tokens for part_facts in facts),
        sum(len(part_facts.skipped) for part_facts in facts),
        time.monotonic() - started,
    )


def _recipe(files: Sequence[InputFile], model: AnyTokenizer, dtype: np.dtype[Any], reading: Reading) -> Recipe:
    """Return everything that the dataset depends on; the tokenizer is the last of the inputs."""
    tokenizer = Source(str(model.path), 1, model.path.stat().st_size, f"md5:{md5_file(model.path)}")
    options = {
        "vocab_size": model.vocab_size,
        "dtype": dtype.name,
        "tokenizer": tokenizer.identity,  # in the options, too: parts of another tokenizer are of no use
        **asdict(reading),
    }
    inputs = [*(file.source for file in files), tokenizer]
    return Recipe(STAGE, options, inputs, versions_of(model.package), BYTES_VERSION)


def _part_name(number: int, file: InputFile) -> str:
    """Name a part by its file's number and content, so that a mended file gets a new part."""
    return f"{number:05d}-{md5_text(f'{file.source.bytes} {file.source.identity}')[:16]}"


def _join_and_publish(
    job: ResumableOutput,
    files: Mapping[str, InputFile],
    facts: Sequence[PartFacts],
    dtype: np.dtype[Any],
) -> None:
    prefix = job.output
    if not any(part_facts.documents for part_facts in facts):
        job.discard()
        raise InputError(f"{prefix}: no document with a token in {counted(len(files), 'file')}; nothing was written")
    tokens = sum(part_facts.tokens for part_facts in facts)
    require_space(prefix.parent, tokens, sum(part_facts.documents for part_facts in facts), dtype)
    joined = join_parts(job, list(files), dtype)
    outputs: dict[Path, tuple[Path, str | None]] = {
        bin_path(prefix): (bin_path(joined.prefix), joined.bin_md5.hexdigest()),
        idx_path(prefix): (idx_path(joined.prefix), joined.idx_md5),
    }
    skipped = [
        (file, line) for file, part_facts in zip(files.values(), facts, strict=True) for line in part_facts.skipped
    ]
    if skipped:
        list_path = job.new_path()
        write_text(list_path, "".join(f"{file}:{number}: {reason}\n" for file, (number, reason) in skipped))
        outputs[skipped_path(prefix)] = list_path, md5_file(list_path)
    job.publish(
        outputs,
        _inputs_now(job.recipe, list(files.values())),
        {
            "documents": joined.num_documents,
            "tokens": joined.num_tokens,
            "skipped_lines": len(skipped),
            "input_md5": [part_facts.source_md5 for part_facts in facts],
        },
    )
    if not skipped:
        skipped_path(prefix).unlink(missing_ok=True)  # of the dataset that was replaced


def _inputs_now(recipe: Recipe, files: Sequence[InputFile]) -> list[Source]:
    """Return the inputs of the recipe; inputs that changed since the command began are described anew."""
    sources = [(file, file.source_now()) for file in files]
    changed = [None if source == file.source else source for file, source in sources]
    return [source or begun for source, begun in zip([*changed, None], recipe.inputs, strict=True)]


def _listed_sums(md5_list: Path, files: Sequence[InputFile]) -> dict[str, str]:
    """Return the MD5 of each input by its name, from the list's entry that is the longest end of its path.

    Raises InputError for an input that is not listed.
    """
    sums, sums_by_input = read_list(md5_list), {}
    for name in map(str, files):
        parts = name.split("/")
        path_ends = ("/".join(parts[first:]) for first in range(len(parts)))
        listed_name = next((path_end for path_end in path_ends if path_end in sums), None)
        if listed_name is None:
            raise InputError(f"--md5-list {md5_list}: has no sum of {name}; leave the option out, or the file")
        sums_by_input[name] = sums[listed_name]
    return sums_by_input


def _require_listed(files: Sequence[InputFile], md5s: Sequence[str], sums: Mapping[str, str] | None) -> None:
    """Raise InputError if the inputs' MD5 ``md5s``, computed while they were read, differ from the list."""
    if sums is None:
        return
    if len(md5s) != len(files):
        raise InputError("the manifest does not tell the MD5 of its inputs; pass --force to make the dataset again")
    for file, md5 in zip(files, md5s, strict=True):
        if sums[str(file)] != md5:
            raise InputError(
                f"{file}: MD5 {md5}, --md5-list has {sums[str(file)]}; nothing was published, get the published file"
            )


@dataclass(frozen=True, kw_only=True)
class PreprocessCommand(InputOptions):
    """Tokenise C4 files, in the order given, into OUTPUT_PREFIX.bin and OUTPUT_PREFIX.idx.

    Example: python -m data_prep preprocess --input en/c4-train.0076[89]*.json.gz --tokenizer sentencepiece.model
    --output-prefix preprocessed_c4_spm/c4_en_6_c4_spm_text_document --workers 64
    """

    tokenizer: Path
    """SentencePiece model, or a tokenizer.json of Hugging Face's."""
    output_prefix: Path
    """Prefix of the dataset to write, without .bin and .idx."""
    workers: int = count_cores()
    """Number of processes that tokenise, each one file at a time; the output does not depend on it."""
    shard: str | None = None
    """K/N, K from 0 or 1 on: tokenise only every N-th file, as one of N tasks on any machines. After all tasks, the
    same command without --shard tokenises remaining files and writes the dataset."""
    on_bad_line: OnBadLine = "stop"
    """Stop at a line that is not a document, or skip it and list it in OUTPUT_PREFIX.skipped.txt."""
    text_key: str = TEXT_KEY
    """The key of the text in a JSON object."""
    append_eod: bool = False
    """Put the tokenizer's end-of-sequence token after each document (the benchmark does not)."""
    md5_list: Path | None = None
    """List of the MD5 sums that the inputs must have, in the form of md5sum; an input is found by the end of its
    path."""

    def run(self) -> None:
        result = preprocess(
            self.locations(),
            self.tokenizer,
            self.output_prefix,
            workers=self.workers,
            reading=Reading(self.on_bad_line, self.text_key, self.append_eod),
            md5_list=self.md5_list,
            bandwidth_limit=self.bandwidth_limit,
            shard=None if self.shard is None else parse_shard(self.shard),
            force=self.force,
        )
        if result is None:
            self.tell(None, f"{self.output_prefix}: already made from these inputs")
            return
        shard_text = "" if self.shard is None else f", shard {self.shard}"
        skipped = f", {counted(result.skipped_lines, 'line')} skipped" if result.skipped_lines else ""
        counts = f"{counted(result.documents, 'document')}, {counted(result.tokens, 'token')}{skipped}"
        self.tell(
            asdict(result),
            f"{self.output_prefix}{shard_text}: {counts} in {result.wall_s:.1f} s "
            f"({result.tokens / result.wall_s:,.0f} tokens/s)",
        )
