"""From C4's shards to token windows."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from data_prep.preprocess import preprocess
from data_prep.samples import write_samples
from data_prep.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.tokenizer import DOCUMENTS, VOCAB_SIZE, train_tokenizer
from stage.cli import main


@dataclass(frozen=True)
class Preprocess:
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
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        result = preprocess(self.input, self.tokenizer, self.output_prefix, workers=self.workers, force=self.force)
        if result is None:
            print(f"{self.output_prefix}: already made from these inputs")
            return
        rate = result.tokens / result.wall_s
        print(
            f"{self.output_prefix}: {result.documents:,} documents, {result.tokens:,} tokens "
            f"in {result.wall_s:.1f} s ({rate:,.0f} tokens/s)"
        )


@dataclass(frozen=True)
class Samples:
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

    def run(self) -> None:
        shape = write_samples(
            self.data_path,
            self.output,
            sequence_length=self.seq_length,
            num_samples=self.num_samples,
            seed=self.seed,
            first=self.first,
            count=self.count,
            plus_one=self.plus_one,
        )
        print(f"{self.output}: int64 {list(shape)}")


@dataclass(frozen=True)
class TrainTokenizer:
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
class SyntheticCorpus:
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


if __name__ == "__main__":
    main(
        "data_prep",
        __doc__,
        {
            "preprocess": Preprocess,
            "samples": Samples,
            "train-tokenizer": TrainTokenizer,
            "synthetic-corpus": SyntheticCorpus,
        },
    )
