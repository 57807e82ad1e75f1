"""Commands on datasets: write samples, blend, merge."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from data_prep.commands.shared_options import JsonOption, OutputOptions
from data_prep.sample_order.blend_file import (
    WeightsBy,
    discover,
    format_blend,
    weights_of,
    write_blend,
)
from data_prep.sample_order.samples import chosen_samples, sample_text, write_samples
from data_prep.sample_order.token_windows import open_token_windows, parse_data_path
from data_prep.token_files.indexed_dataset import IndexedDataset
from data_prep.token_files.merge_datasets import merge_datasets
from data_prep.tokenizing.tokenizer import open_tokenizer
from stage.outputs.manifest import require_intact


@dataclass(frozen=True, kw_only=True)
class SamplesCommand(JsonOption):
    """Write the token windows that training would read, in order: int64 [count, seq_length (+1)] in a .npy file.

    Example: python -m data_prep samples --data-path 0.5 c4_en_6_c4_spm_text_document 0.5 c4_en_7_c4_spm_text_document
    --seq-length 2048 --num-samples 20000000 --seed 1234 --first 6144000 --count 1536 --output first_batch.npy
    """

    data_path: tuple[str, ...]
    """One dataset prefix, or weights and prefixes in turn."""
    seq_length: int
    """Tokens per sample."""
    num_samples: int
    """Number of training samples that the run requests; -1 for one whole pass, as in evaluation."""
    seed: int
    """Seed of the shuffle."""
    output: Path
    """The .npy file to write."""
    first: int = 0
    """First sample to write."""
    count: int | None = None
    """Number of samples to write; by default all requested ones."""
    plus_one: bool = False
    """Read one more token per sample (the benchmark does not)."""
    tokenizer: Path | None = None
    """Also print the samples as text."""
    documents: bool = False
    """Print the documents that each sample is made of, numbered from 0 in the order in which they were preprocessed."""

    def run(self) -> None:
        model = None if self.tokenizer is None else open_tokenizer(self.tokenizer)
        for prefix in parse_data_path(self.data_path)[1]:
            require_intact(Path(prefix))
        windows = open_token_windows(
            self.data_path,
            sequence_length=self.seq_length,
            num_samples=self.num_samples,
            seed=self.seed,
            plus_one=self.plus_one,
        )
        samples = chosen_samples(windows, self.first, self.count, self.num_samples)
        shape = write_samples(windows, samples, self.seq_length + int(self.plus_one), self.output)
        if self.json:
            told: dict[str, object] = {"output": str(self.output), "shape": shape}
            if self.documents:
                told["documents"] = [windows.documents(sample) for sample in samples]
            if model is not None:
                told["texts"] = [sample_text(windows, sample, model)[1] for sample in samples]
            print(json.dumps(told))
            return
        if self.documents:
            for sample in samples:
                print(f"sample {sample}: {windows.documents(sample)}")
        print(f"{self.output}: int64 {list(shape)}")
        if model is not None:
            for sample in samples:
                tokens, text = sample_text(windows, sample, model)
                print(f"--- sample {sample}: {tokens} tokens\n{text}")


@dataclass(frozen=True, kw_only=True)
class BlendCommand(JsonOption):
    """Find datasets, give each a weight, and write both as a small file that train, samples and inspect take.

    Example: python -m data_prep blend --input preprocessed_c4_spm/c4_en_{6,7}_c4_spm_text_document
    --output c4.blend.json --weights tokens
    """

    input: tuple[Path, ...]
    """Folders in which datasets are searched, with all folders below them; or prefixes of datasets."""
    output: Path
    """File to write, whose name ends in .blend.json."""
    weights: WeightsBy = "tokens"
    """Weight by number of tokens, or equally; other weights can be written into the file by hand."""
    temperature: float = 1.0
    """Numbers of tokens count to the power 1/TEMPERATURE: above 1 small datasets get more than their share."""

    def run(self) -> None:
        prefixes = discover(self.input)
        for prefix in prefixes:
            require_intact(prefix)
        datasets = [IndexedDataset(prefix) for prefix in prefixes]
        tokens = [dataset.num_tokens for dataset in datasets]
        weights = weights_of(tokens, self.weights, temperature=self.temperature)
        write_blend(self.output, prefixes, weights, tokens)
        print(self.output.read_text(encoding="utf-8").rstrip() if self.json else format_blend(self.output))


@dataclass(frozen=True, kw_only=True)
class MergeCommand(OutputOptions):
    """Put datasets one after the other into one, in the order given.

    Example: python -m data_prep merge --input a_text_document b_text_document --output-prefix ab_text_document
    """

    input: tuple[Path, ...]
    """Datasets of one tokenizer, without .bin and .idx."""
    output_prefix: Path
    """Prefix of the dataset to write, without .bin and .idx."""

    def run(self) -> None:
        merged = merge_datasets(self.input, self.output_prefix, force=self.force)
        if merged is None:
            self.tell(None, f"{self.output_prefix}: already made from these datasets")
        else:
            text = f"{self.output_prefix}: {merged.documents:,} documents, {merged.tokens:,} tokens"
            self.tell(asdict(merged), text)
