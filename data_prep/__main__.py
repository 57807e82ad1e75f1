"""From C4's shards to token windows."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, NoReturn

import tyro

from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.corpus.validation_subset import COUNT, hashes_path, write_validation_subset
from data_prep.inspection.inspect_dataset import (
    compare_datasets,
    draw_lengths,
    format_dataset_comparison,
    format_dataset_report,
    inspect_dataset,
    require_known_tokens,
    require_picture_format,
    require_same_datasets,
)
from data_prep.preparation.artifacts import NEEDED, What, parse_shards
from data_prep.preparation.fetch import fetch, files_there, format_table, require_all, wanted_files
from data_prep.preparation.preparation_plan import format_plans, make_plans, plans_as_json, with_rates
from data_prep.sample_order.samples import print_texts, write_samples
from data_prep.tokenizing.preprocess import preprocess
from data_prep.tokenizing.shard_parts import OnBadLine
from data_prep.tokenizing.tokenizer import DOCUMENTS, VOCAB_SIZE, Tokenizer, train_tokenizer
from stage.cli import main
from stage.task_shard import parse_shard


@dataclass(frozen=True)
class FetchCommand:
    """Bring the benchmark's inputs together, checked, and say what is missing and where it comes from.

    Example: python -m data_prep fetch --output c4 --what train
    """

    output: Path
    """Folder; files get the names and places that the other commands' examples use."""
    what: tuple[What, ...] = NEEDED
    """'validation' is for choosing another validation subset; 'dataset' is what preprocess makes, ready-made."""
    shards: str | None = None
    """FIRST-LAST: these training shards rather than 768-1023."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Take the files from this folder, by link or copy, and nothing from the network."""
    revision: str | None = None
    """Branch, tag or commit of the Hugging Face dataset; by default the commit of earlier calls, or the newest."""
    list: bool = False
    """Only say what is there."""

    def run(self) -> None:
        wanted = wanted_files(self.what, None if self.shards is None else parse_shards(self.shards))
        if not self.list:
            fetch(self.output, wanted, source=self.from_, revision=self.revision)
        there = files_there(self.output, wanted)
        print(format_table(there))
        require_all(self.output, there)


@dataclass(frozen=True)
class PreprocessCommand:
    """Tokenise C4 files, in the order given, into OUTPUT_PREFIX.bin and OUTPUT_PREFIX.idx.

    Example: python -m data_prep preprocess --input en/c4-train.0076[89]*.json.gz --tokenizer sentencepiece.model
    --output-prefix preprocessed_c4_spm/c4_en_6_c4_spm_text_document --workers 64
    """

    input: tuple[Path, ...]
    """Files of JSON lines with a "text" each, .json or .json.gz."""
    tokenizer: Path
    """SentencePiece model."""
    output_prefix: Path
    """Where to write, without .bin and .idx."""
    workers: int = len(os.sched_getaffinity(0))
    """Processes that tokenise; the output does not depend on it."""
    shard: str | None = None
    """K/N, K from 0 to N-1: tokenise only every N-th file, from number K on, as one of N tasks on any machines. The
    same command without --shard, once all have ended, does what is not done and joins the parts."""
    on_bad_line: OnBadLine = "stop"
    """A line that is not a document stops the command, or is skipped and listed in OUTPUT_PREFIX.skipped.txt."""
    force: bool = False
    """Replace what is there."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        result = preprocess(
            self.input,
            self.tokenizer,
            self.output_prefix,
            workers=self.workers,
            on_bad_line=self.on_bad_line,
            shard=None if self.shard is None else parse_shard(self.shard),
            force=self.force,
        )
        if self.json:
            print(json.dumps(None if result is None else asdict(result)))
        elif result is None:
            print(f"{self.output_prefix}: already made from these inputs")
        else:
            rate = result.tokens / result.wall_s
            what = "" if self.shard is None else f", shard {self.shard}"
            skipped = f", {result.skipped_lines:,} lines skipped" if result.skipped_lines else ""
            print(
                f"{self.output_prefix}{what}: {result.documents:,} documents, {result.tokens:,} tokens{skipped} "
                f"in {result.wall_s:.1f} s ({rate:,.0f} tokens/s)"
            )


@dataclass(frozen=True)
class SamplesCommand:
    """Write the token windows training would see, in order: int64 [count, seq_length (+1)] in a .npy file.

    Example: python -m data_prep samples --data-path 0.5 c4_en_6_c4_spm_text_document 0.5 c4_en_7_c4_spm_text_document
    --seq-length 2048 --num-samples 20000000 --seed 1234 --first 6144000 --count 1536 --output first_batch.npy
    """

    data_path: tuple[str, ...]
    """One dataset prefix, or weights and prefixes in turn."""
    seq_length: int
    """Tokens per sample."""
    num_samples: int
    """Training samples the run asks for; -1: one whole pass, as in evaluation."""
    seed: int
    """Seed of the shuffle."""
    output: Path
    """The .npy file to write."""
    first: int = 0
    """First sample to write."""
    count: int | None = None
    """How many; by default all that were asked for."""
    plus_one: bool = False
    """Read one more token per sample (the benchmark does not)."""
    tokenizer: Path | None = None
    """Print the samples as text, too."""
    documents: bool = False
    """Print which documents each sample is made of, numbered from 0 in the order they were preprocessed in."""

    def run(self) -> None:
        model = None if self.tokenizer is None else Tokenizer(self.tokenizer)
        shape = write_samples(
            self.data_path,
            self.output,
            sequence_length=self.seq_length,
            num_samples=self.num_samples,
            seed=self.seed,
            first=self.first,
            count=self.count,
            plus_one=self.plus_one,
            print_documents=self.documents,
        )
        print(f"{self.output}: int64 {list(shape)}")
        if model is not None:
            print_texts(self.output, model, self.first)


@dataclass(frozen=True)
class InspectDatasetCommand:
    """Check every pointer of a .bin/.idx pair and show what is in it. Exit status 1: a check failed.

    Example: python -m data_prep inspect --data-path preprocessed_c4_spm/c4_en_6_c4_spm_text_document
    --tokenizer sentencepiece.model --picture lengths.svg
    """

    data_path: Path
    """The dataset, without .bin and .idx."""
    against: Path | None = None
    """Another dataset to compare it with; exit status 1 if they are not the same, token by token."""
    tokenizer: Path | None = None
    """SentencePiece model: shows the pieces, finds tokens beyond the vocabulary, decodes a sample."""
    picture: Path | None = None
    """Draw the histogram of document lengths into this .svg or .png; needs matplotlib."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        if self.picture is not None:
            require_picture_format(self.picture)
        one = inspect_dataset(self.data_path, self.tokenizer)
        other = None if self.against is None else inspect_dataset(self.against, self.tokenizer)
        comparison = None if other is None else compare_datasets(one, other)
        if self.json:
            print(json.dumps({**asdict(one.report), "against": asdict(comparison) if comparison else None}, indent=1))
        else:
            print(format_dataset_report(one.report))
            if comparison is not None:
                print(format_dataset_comparison(one.report, comparison))
        datasets = [one] if other is None else [one, other]
        if self.picture is not None:
            draw_lengths({dataset.report.prefix: dataset.lengths for dataset in datasets}, self.picture)
        for dataset in datasets:
            require_known_tokens(dataset.report)
        if comparison is not None:
            require_same_datasets(one.report, comparison)


@dataclass(frozen=True)
class TrainTokenizerCommand:
    """Train a SentencePiece BPE model with the reference's options.

    Example: python -m data_prep train-tokenizer --input en/c4-train.*.json.gz --output sentencepiece.model
    """

    input: tuple[Path, ...]
    """Files of JSON lines with a "text" each."""
    output: Path
    """The model to write."""
    vocab_size: int = VOCAB_SIZE
    """Number of pieces."""
    documents: int = DOCUMENTS
    """Train on the first so many documents."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        made = train_tokenizer(
            self.input, self.output, vocab_size=self.vocab_size, documents=self.documents, force=self.force
        )
        print(f"{self.output}: {self.vocab_size} pieces" if made else f"{self.output}: already made from these inputs")


@dataclass(frozen=True)
class ValidationSubsetCommand:
    """Choose the validation documents, by their hashes or every N/COUNT-th of the inputs. Writes OUTPUT.hashes as well.

    Example: python -m data_prep validation-subset --input en/c4-validation.*.json.gz
    --output c4-validation_24567exp.json --hash-list c4_en_3.0.1_validation_24567exp.hash
    """

    input: tuple[Path, ...]
    """C4's validation files, in order."""
    output: Path
    """The lines chosen, as they are."""
    count: int = COUNT
    """How many, if there is no list."""
    hash_list: Path | None = None
    """MD5 of each document's text, one per line, in order. Only this gives a selection that was published."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        subset = write_validation_subset(
            self.input, self.output, count=self.count, hash_list=self.hash_list, force=self.force
        )
        if subset is None:
            print(f"{self.output}: already made from these inputs")
            return
        print(
            f"{self.output}: {subset.documents:,} of {subset.of_documents:,} documents, {subset.text_bytes:,} bytes of "
            f"text in {subset.text_lines:,} lines, {subset.shortest:,} to {subset.longest:,} bytes per document; "
            f"hashes in {hashes_path(self.output)}"
        )


@dataclass(frozen=True)
class PlanPreparationCommand:
    """How long the benchmark's data takes to prepare, and what limits each stage. Reads nothing, needs nothing.

    Example: python -m data_prep plan --nodes 1 8 --cores 64 --disk-mb-per-s 5000
    """

    nodes: tuple[int, ...] = (1, 8)
    """One plan for each number of nodes."""
    cores: int = 64
    """Per node."""
    mb_per_s_per_core: float | None = None
    """Text that one core tokenises, 10^6 bytes per second; by default as measured."""
    disk_mb_per_s: float | None = None
    """What the file system reads and writes, all nodes together."""
    network_mb_per_s: float | None = None
    """What arrives from Hugging Face."""
    json: bool = False
    """Print the plans as JSON."""

    def run(self) -> None:
        rates = with_rates(tokenise=self.mb_per_s_per_core, disk=self.disk_mb_per_s, network=self.network_mb_per_s)
        plans = make_plans(self.nodes, self.cores, rates)
        print(json.dumps(plans_as_json(plans, rates), indent=1) if self.json else format_plans(plans, rates))


@dataclass(frozen=True)
class SyntheticCorpusCommand:
    """Write a small made-up corpus in C4's format: OUTPUT/en/c4-train.*.json.gz and OUTPUT/c4-validation.json.

    Example: python -m data_prep synthetic-corpus --output corpus --seed 1
    """

    output: Path
    """Folder to write."""
    seed: int
    """Same seed, same bytes."""
    size: CorpusSize = field(default_factory=CorpusSize)
    """How much text."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        made = write_synthetic_corpus(self.output, seed=self.seed, size=self.size, force=self.force)
        print(f"{self.output}: {self.size.shards} shards" if made else f"{self.output}: already made")


def console() -> NoReturn:
    """``python -m data_prep``, and the script ``data_prep`` of an installation."""
    main(
        "data_prep",
        __doc__,
        {
            "plan": PlanPreparationCommand,
            "fetch": FetchCommand,
            "preprocess": PreprocessCommand,
            "samples": SamplesCommand,
            "inspect": InspectDatasetCommand,
            "train-tokenizer": TrainTokenizerCommand,
            "validation-subset": ValidationSubsetCommand,
            "synthetic-corpus": SyntheticCorpusCommand,
        },
    )


if __name__ == "__main__":
    console()
