"""Commands that read or generate text: preprocess, train-tokenizer, validation-subset, synthetic-corpus."""

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from data_prep.commands.shared_options import InputOptions, OutputOptions
from data_prep.corpus.c4 import TEXT_KEY
from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.corpus.validation_subset import COUNT, hashes_path, write_validation_subset
from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_piece import OnBadLine, Reading
from data_prep.tokenizing.tokenizer import DOCUMENTS, VOCAB_SIZE, train_tokenizer
from stage.outputs.shards import parse_shard


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
    workers: int = len(os.sched_getaffinity(0))
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
            self.places(),
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
        what = "" if self.shard is None else f", shard {self.shard}"
        skipped = f", {result.skipped_lines:,} lines skipped" if result.skipped_lines else ""
        self.tell(
            asdict(result),
            f"{self.output_prefix}{what}: {result.documents:,} documents, {result.tokens:,} tokens{skipped} "
            f"in {result.wall_s:.1f} s ({result.tokens / result.wall_s:,.0f} tokens/s)",
        )


@dataclass(frozen=True, kw_only=True)
class TrainTokenizerCommand(InputOptions):
    """Train a SentencePiece BPE model with the reference's options.

    Example: python -m data_prep train-tokenizer --input en/c4-train.*.json.gz --output sentencepiece.model
    """

    output: Path
    """Model file to write."""
    vocab_size: int = VOCAB_SIZE
    """Number of pieces."""
    documents: int = DOCUMENTS
    """Number of documents to train on, from the first on."""

    def run(self) -> None:
        made = train_tokenizer(
            self.places(),
            self.output,
            vocab_size=self.vocab_size,
            bandwidth_limit=self.bandwidth_limit,
            documents=self.documents,
            force=self.force,
        )
        self.tell(
            {"output": str(self.output), "made": made, "vocab_size": self.vocab_size},
            f"{self.output}: {self.vocab_size} pieces" if made else f"{self.output}: already made from these inputs",
        )


@dataclass(frozen=True, kw_only=True)
class ValidationSubsetCommand(InputOptions):
    """Choose the validation documents, by their hashes or every N/COUNT-th of the inputs. Also write OUTPUT.hashes.

    Example: python -m data_prep validation-subset --input en/c4-validation.*.json.gz
    --output c4-validation_24567exp.json --hash-list c4_en_3.0.1_validation_24567exp.hash
    """

    output: Path
    """File for the chosen lines, which are copied unchanged."""
    count: int = COUNT
    """Number of documents, if there is no list."""
    hash_list: Path | None = None
    """MD5 of each document's text, one per line, in order. Only such a list reproduces a published selection."""

    def run(self) -> None:
        subset = write_validation_subset(
            self.places(),
            self.output,
            count=self.count,
            bandwidth_limit=self.bandwidth_limit,
            hash_list=self.hash_list,
            force=self.force,
        )
        if subset is None:
            self.tell(None, f"{self.output}: already made from these inputs")
            return
        self.tell(
            asdict(subset),
            f"{self.output}: {subset.documents:,} of {subset.of_documents:,} documents, {subset.text_bytes:,} bytes of "
            f"text in {subset.text_lines:,} lines, {subset.shortest:,} to {subset.longest:,} bytes per document; "
            f"hashes in {hashes_path(self.output)}",
        )


@dataclass(frozen=True, kw_only=True)
class SyntheticCorpusCommand(OutputOptions):
    """Write a small generated corpus in C4's format: OUTPUT/en/c4-train.*.json.gz and OUTPUT/c4-validation.json.

    Example: python -m data_prep synthetic-corpus --output corpus --seed 1
    """

    output: Path
    """Folder to write."""
    seed: int
    """Seed of the text; the same seed gives the same bytes."""
    size: CorpusSize = field(default_factory=CorpusSize)
    """Amount of text."""

    def run(self) -> None:
        made = write_synthetic_corpus(self.output, seed=self.seed, size=self.size, force=self.force)
        self.tell(
            {"output": str(self.output), "made": made, "shards": self.size.shards},
            f"{self.output}: {self.size.shards} shards" if made else f"{self.output}: already made",
        )
