"""The files that a run reads: check them before anything is started, open them, and name them in the run's log."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.run_sections import DataOptions
from benchmark.run_record.small_files import warn
from checkpoint_convert.formats.step_files import fp32_weights_prefix
from data_prep.sample_order.token_windows import (
    BlendedDataset,
    DocumentPart,
    SingleDataset,
    TokenWindows,
    open_token_windows,
    parse_data_path,
)
from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path
from data_prep.token_files.same_tokenizer import unknown_tokenizers
from data_prep.token_files.token_check import token_problem
from foundation.disk_answers import folder_is_there
from foundation.errors import InputError
from foundation.outputs.digest import md5_samples
from foundation.outputs.manifest import manifest_path, read_manifest, require_intact
from foundation.regular_files import folder_fault


@dataclass(frozen=True)
class Datasets:
    training: TokenWindows
    validation: TokenWindows
    validation_tokens: int
    """Tokens of the validation set before it is cut into windows."""


def require_inputs(data: DataOptions, benchmark: Benchmark, *, trains: bool = True, begins: bool = True) -> None:
    """Raise InputError for inputs that are missing, incomplete, made for another vocabulary, or both trained on and
    evaluated on. An initial checkpoint must be in the Megatron zarr layout.

    ``trains``: training data are needed. ``begins``: the run resumes from no checkpoint of its own.
    """
    vocab_size = benchmark.model.vocab_size
    for name, data_path in (("train", data.train_data_path), ("valid", data.valid_data_path)):
        if name == "train" and not trains:
            continue
        if not data_path:
            raise InputError(f"--{name}-data-path is missing: one dataset prefix, or weights and prefixes in turn")
        for line in unknown_tokenizers(_prefixes(data_path)):
            warn(line)
        for prefix in _prefixes(data_path):
            manifest = require_intact(prefix)
            dataset_pieces = manifest.options.get("vocab_size") if manifest else None
            if dataset_pieces not in (None, vocab_size):
                raise InputError(
                    f"{prefix}: tokenised with a vocabulary of {dataset_pieces} pieces, but the model has "
                    f"{vocab_size}; use the data of this benchmark's tokenizer"
                )
            dataset = IndexedDataset(prefix)
            if problem := token_problem(bin_path(prefix), dataset.dtype, vocab_size):
                raise InputError(f"{problem}; use the data of this benchmark's tokenizer, whole")
    if trains:
        _require_apart(data)
    if not begins or (trains and benchmark.start_iterations == 0):
        return  # it has a checkpoint of its own, or draws its weights
    if data.checkpoint is None:
        raise InputError("--checkpoint is missing: the converted initial checkpoint to start from")
    if not folder_is_there(data.checkpoint):
        raise InputError(
            f"{data.checkpoint}: {folder_fault(data.checkpoint)}; convert the checkpoint first (checkpoint_convert)"
        )
    require_intact(data.checkpoint)
    if trains:
        fp32_weights_prefix(data.checkpoint)


def _require_apart(data: DataOptions) -> None:
    """Raise InputError if training data contain the validation set: a run trained on it reaches any target.

    A blend of all datasets of a folder may include the validation set by mistake.
    """
    validation = {md5_samples(bin_path(prefix)): prefix for prefix in _prefixes(data.valid_data_path)}
    sizes = {bin_path(prefix).stat().st_size for prefix in validation.values()}
    for prefix in _prefixes(data.train_data_path):
        tokens = bin_path(prefix)
        if tokens.stat().st_size in sizes and (validation_prefix := validation.get(md5_samples(tokens))):
            raise InputError(
                f"--train-data-path {prefix}: has the tokens of --valid-data-path {validation_prefix}; leave the "
                "validation set out of the training data"
            )


def open_data(data: DataOptions, benchmark: Benchmark, seed: int) -> Datasets:
    """Open both sets and compute the order of all samples. This reads document lengths, but no token."""
    training = open_token_windows(
        data.train_data_path,
        sequence_length=benchmark.model.seq_length,
        num_samples=benchmark.ordered_samples,
        seed=seed,
        plus_one=benchmark.labels_last_token,
        shuffle_documents=benchmark.shuffle_documents,
    )
    return Datasets(training, open_validation(data, benchmark, seed), count_validation_tokens(data))


def count_validation_tokens(data: DataOptions) -> int:
    """Count the tokens of the validation set before it is cut into windows. Reads the index only."""
    return sum(IndexedDataset(prefix).num_tokens for prefix in _prefixes(data.valid_data_path))


def open_validation(data: DataOptions, benchmark: Benchmark, seed: int) -> TokenWindows:
    """Open the windows of the validation set that the benchmark evaluates: all, or some of one dataset.

    All, and the first of the file, are the same for each seed; the first in the order of the seed are not. Raises
    InputError if the set has fewer windows, or if several datasets are named, so that no dataset is the first.
    """
    count = benchmark.evaluation_sequences
    prefixes = _prefixes(data.valid_data_path)
    if count is not None and len(prefixes) > 1:
        raise InputError(
            f"--valid-data-path: {len(prefixes)} datasets, but {count:,} sequences of one are evaluated; name one alone"
        )
    by_seed = benchmark.validation_order == "seed"
    windows = open_token_windows(
        [str(prefixes[0])] if by_seed else data.valid_data_path,  # a dataset alone: no blend, which has a margin
        sequence_length=benchmark.model.seq_length,
        num_samples=benchmark.ordered_evaluation_samples if by_seed else -1,
        seed=seed,
        plus_one=benchmark.labels_last_token,
        shuffle_documents=by_seed,
    )
    if count is None:
        return windows
    dataset = windows.parts[0] if isinstance(windows, BlendedDataset) else windows
    assert isinstance(dataset, SingleDataset)
    if len(dataset) < count:
        raise InputError(
            f"--valid-data-path {dataset.tokens.prefix}: {len(dataset):,} sequences of {benchmark.model.seq_length} "
            f"tokens, but {count:,} are evaluated; give a larger set, or lower --evaluation-sequences"
        )
    return FirstSequences(dataset, count, by_seed=by_seed)


def describe_validation(benchmark: Benchmark) -> str | None:
    """Describe which windows of the validation set are evaluated; None if all are."""
    if benchmark.evaluation_sequences is None:
        return None
    orders = {"file": "the first of its file", "seed": "the first in Megatron-Core's order, shuffled by the seed"}
    order = benchmark.validation_order
    count = f"{benchmark.evaluation_sequences:,} windows of the validation set"
    return f"each evaluation scores {count}: {orders[order]} (--validation-order {order})"


@dataclass(frozen=True)
class FirstSequences:
    """The first windows of a dataset, in the order of its file or in that of the seed."""

    dataset: SingleDataset
    count: int
    by_seed: bool = False

    def __len__(self) -> int:
        return self.count

    def window(self, sample: int) -> npt.NDArray[np.int64]:
        return self.dataset.window(self._shuffled_sample(sample))

    def documents(self, sample: int) -> list[DocumentPart]:
        return self.dataset.documents(self._shuffled_sample(sample))

    def _shuffled_sample(self, sample: int) -> int:
        return range(self.count)[sample] if self.by_seed else int(self._by_file[sample])

    @cached_property
    def _by_file(self) -> npt.NDArray[np.int64]:
        """Return, for the first windows of the file, their numbers in the shuffled order."""
        shuffled = self.dataset.index.shuffle_idx[:]
        samples = np.flatnonzero(shuffled < self.count)
        return samples[np.argsort(shuffled[samples])]


def provenance(data: DataOptions) -> dict[str, Any]:
    """Return, for the log, each input with the digests in its manifest, or null where it has no manifest."""
    digests: dict[str, Any] = {}
    for path in input_paths(data):
        manifest = read_manifest(path)
        digests[str(path)] = manifest and {
            "manifest": str(manifest_path(path)),
            "md5": {record.name: record.md5 for record in manifest.outputs},
        }
    return digests


def input_paths(data: DataOptions) -> list[Path]:
    """Return the inputs named by the options: training and validation prefixes, and the initial checkpoint."""
    data_paths = filter(None, (data.train_data_path, data.valid_data_path))
    paths = [prefix for data_path in data_paths for prefix in _prefixes(data_path)]
    return paths if data.checkpoint is None else [*paths, data.checkpoint]


def _prefixes(data_path: tuple[str, ...]) -> list[Path]:
    return [Path(prefix) for prefix in parse_data_path(data_path)[1]]
