"""Write the token windows that training or evaluation reads, in order, to a ``.npy`` file; show their contents."""

import dataclasses
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.sample_order.token_windows import (
    PADDING,
    TokenWindows,
    open_token_windows,
    parse_data_path,
    require_vocabulary,
)
from data_prep.sample_order.training_orders import TRAINING_ORDERS, TrainingOrder
from data_prep.token_files.same_tokenizer import unknown_tokenizers
from data_prep.tokenizing.tokenizer import AnyTokenizer, open_tokenizer
from foundation.cli import JsonOption, choose
from foundation.errors import InputError
from foundation.outputs.manifest import require_intact
from foundation.outputs.publish import published_file, require_same_kind
from foundation.progress import progress
from foundation.sizes import require_between

NPY = b"\x93NUMPY"


def chosen_samples(windows: TokenWindows, first: int, count: int | None, num_samples: int) -> range:
    """Return the numbers of ``count`` samples from ``first`` on.

    ``count`` None: all samples requested by ``num_samples``, or of the whole epoch. Raises InputError for samples that
    the order does not have.
    """
    available = len(windows)
    requested = available if num_samples < 0 else num_samples
    chosen = max(0, requested - first) if count is None else count
    if first + chosen > available:
        raise InputError(f"--first {first} --count {chosen}: the data path has samples 0 to {available - 1}")
    if count is None and 0 < requested <= first:
        raise InputError(f"--first {first}: expected 0 to {requested - 1}, for --num-samples is {requested}")
    return range(first, first + chosen)


def write_samples(
    windows: TokenWindows, samples: range, width: int, output: Path, vocab_size: int | None = None
) -> tuple[int, int]:
    """Write int64 [count, width] to ``output``, where ``width`` is the tokens per sample; return that shape.

    Missing tokens at the end of the evaluation set are -1. Raises InputError for a token beyond the vocabulary.
    """
    shape = (len(samples), width)
    header = {"descr": "<i8", "fortran_order": False, "shape": shape}
    with (
        published_file(output) as partial,
        partial.open("wb") as file,
        progress("write samples", len(samples), "samples") as advance,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        for sample in samples:
            window = windows.window(sample)
            if vocab_size is not None:
                require_vocabulary(windows, sample, window, vocab_size)
            file.write(window.astype("<i8").data)
            advance(1)
    return shape


def sample_text(windows: TokenWindows, sample: int, model: AnyTokenizer) -> tuple[int, str]:
    """Return a sample's number of tokens, and its text. Raises InputError for a token beyond the model."""
    window = windows.window(sample)
    tokens = window[window != PADDING]
    if tokens.size and int(tokens.max()) >= model.vocab_size:
        raise InputError(
            f"--tokenizer has {model.vocab_size} pieces, but sample {sample} holds token {tokens.max()}; "
            "the dataset was made with another tokenizer"
        )
    return len(tokens), model.decode(tokens.tolist())


def _documents_text(windows: TokenWindows, sample: int) -> str:
    return "; ".join(map(str, windows.documents(sample)))


@dataclass(frozen=True, kw_only=True)
class SamplesCommand(JsonOption):
    """Write the token windows that training would read, in order: int64 [count, seq_length (+1)] in a .npy file.

    Example: python -m data_prep samples --data-path 0.5 c4_en_6_c4_spm_text_document 0.5 c4_en_7_c4_spm_text_document
    --seq-length 2048 --num-samples 20000000 --seed 1234 --first 6144000 --count 1536 --output first_batch.npy

    Example: python -m data_prep samples --benchmark llama31_8b --data-path c4-train.en_6_text_document --seed 1234
    --step 1 --output first_batch.npy
    """

    data_path: tuple[str, ...]
    """One dataset prefix, or weights and prefixes in turn."""
    seed: int
    """Seed of the shuffle."""
    output: Path
    """The .npy file to write."""
    benchmark: str | None = None
    """Write the samples of a step of this benchmark: its name settles the options below that are not given."""
    step: int = 1
    """Step of a run of --benchmark, counted from its start."""
    global_batch_size: int | None = None
    """Samples per step of that run; by default the benchmark's usual number."""
    seq_length: int | None = None
    """Tokens per sample."""
    num_samples: int | None = None
    """Number of training samples that the run requests; -1 for one whole pass, as in evaluation."""
    first: int | None = None
    """First sample to write, by default 0."""
    count: int | None = None
    """Number of samples to write; by default all requested ones."""
    plus_one: bool = False
    """Read one more token per sample, as Llama 3.1 8B does and GPT-3 does not."""
    shuffle_documents: bool = False
    """Shuffle documents before windows, as Megatron-Core does for Llama 3.1 8B."""
    tokenizer: Path | None = None
    """Also print the samples as text."""
    documents: bool = False
    """Print the documents that each sample is made of, numbered from 0 in the order in which they were preprocessed."""

    def run(self) -> None:
        if self.benchmark is not None:
            order = TRAINING_ORDERS[choose(self.benchmark, TRAINING_ORDERS, "benchmark")]
            dataclasses.replace(self, benchmark=None, **self._of_step(order))._run(order.vocab_size)
            return
        self._run()

    def _run(self, vocab_size: int | None = None) -> None:
        if self.step != 1 or self.global_batch_size is not None:
            raise InputError("--step and --global-batch-size are those of a run: name its --benchmark")
        if self.seq_length is None or self.num_samples is None:
            option = "--seq-length" if self.seq_length is None else "--num-samples"
            raise InputError(f"{option} is missing: give it, or --benchmark with one of {', '.join(TRAINING_ORDERS)}")
        self._write(self.seq_length, self.num_samples, self.first or 0, vocab_size)

    def _of_step(self, order: TrainingOrder) -> dict[str, Any]:
        """Return the options of a step of a benchmark, where they are not given."""
        size = order.global_batch_size if self.global_batch_size is None else self.global_batch_size
        require_between(size, 1, math.inf, "--global-batch-size")
        requested = order.requested_samples(size) if self.num_samples is None else self.num_samples
        require_between(self.step, 1, max(1, (requested - order.start_samples) // size), "--step")
        by_step = {
            "seq_length": order.sequence_length,
            "num_samples": requested,
            "first": order.start_samples + (self.step - 1) * size,
            "count": size,
        }
        return {
            **{name: value if getattr(self, name) is None else getattr(self, name) for name, value in by_step.items()},
            "plus_one": order.plus_one or self.plus_one,
            "shuffle_documents": order.shuffle_documents or self.shuffle_documents,
            "step": 1,
            "global_batch_size": None,
        }

    def _write(self, sequence_length: int, num_samples: int, first: int, vocab_size: int | None) -> None:
        require_same_kind(self.output, "--output", "a .npy file", lambda head: head.startswith(NPY))
        require_between(first, 0, math.inf, "--first")
        require_between(0 if self.count is None else self.count, 0, math.inf, "--count")
        model = None if self.tokenizer is None else open_tokenizer(self.tokenizer)
        prefixes = [Path(prefix) for prefix in parse_data_path(self.data_path)[1]]
        for prefix in prefixes:
            require_intact(prefix)
        windows = open_token_windows(
            self.data_path,
            sequence_length=sequence_length,
            num_samples=num_samples,
            seed=self.seed,
            plus_one=self.plus_one,
            shuffle_documents=self.shuffle_documents,
        )
        for line in unknown_tokenizers(prefixes):
            print(line, file=sys.stderr)
        samples = chosen_samples(windows, first, self.count, num_samples)
        shape = write_samples(windows, samples, sequence_length + int(self.plus_one), self.output, vocab_size)
        if self.json:
            result: dict[str, object] = {"output": str(self.output), "shape": shape}
            if self.documents:
                result["documents"] = [_documents_text(windows, sample) for sample in samples]
            if model is not None:
                result["texts"] = [sample_text(windows, sample, model)[1] for sample in samples]
            print(json.dumps(result))
            return
        if self.documents:
            for sample in samples:
                print(f"sample {sample}: {_documents_text(windows, sample)}")
        print(f"{self.output}: int64 {list(shape)}")
        if model is not None:
            for sample in samples:
                tokens, text = sample_text(windows, sample, model)
                print(f"--- sample {sample}: {tokens} tokens\n{text}")
