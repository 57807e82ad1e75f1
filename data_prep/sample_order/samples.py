"""Write the token windows that training or evaluation reads, in order, to a ``.npy`` file; print them as text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_prep.sample_order.token_windows import PADDING, DocumentPart, open_token_windows
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.errors import InputError
from stage.progress import progress
from stage.publish import published_file


def write_samples(
    data_path: Sequence[str],
    output: Path,
    *,
    sequence_length: int,
    num_samples: int,
    seed: int,
    first: int = 0,
    count: int | None = None,
    plus_one: bool = False,
    print_documents: bool = False,
) -> tuple[int, int]:
    """Write int64 [count, sequence_length (+1)] to ``output``; returns that shape.

    ``count`` None: all that were requested from ``first`` on, or for ``num_samples`` = -1 the whole epoch. Tokens
    missing at the end of the evaluation set are -1. ``print_documents``: print what each sample is made of, too.
    """
    windows = open_token_windows(
        data_path, sequence_length=sequence_length, num_samples=num_samples, seed=seed, plus_one=plus_one
    )
    available = len(windows)
    if count is None:
        count = max(0, (available if num_samples < 0 else num_samples) - first)
    if first < 0 or count < 0 or first + count > available:
        raise InputError(f"--first {first} --count {count}: the data path has samples 0 to {available - 1}")
    shape = (count, sequence_length + int(plus_one))
    with published_file(output) as partial, progress("write samples", count, "samples") as advance:
        rows = np.lib.format.open_memmap(partial, mode="w+", dtype=np.int64, shape=shape)
        for row in range(count):
            rows[row] = windows.window(first + row)
            advance(1)
        rows.flush()
    if print_documents:
        for sample in range(first, first + count):
            parts = "; ".join(_words_for(part) for part in windows.documents(sample))
            print(f"sample {sample}: {parts}")
    return shape


def _words_for(part: DocumentPart) -> str:
    return f"{part.prefix} document {part.document} tokens {part.begin} to {part.end - 1}"


def print_texts(samples: Path, model: Tokenizer, first: int) -> None:
    """Print what :func:`write_samples` wrote, as text. Raises InputError for a token the tokenizer does not have."""
    for number, row in enumerate(np.load(samples, mmap_mode="r"), first):
        tokens = row[row != PADDING]
        if tokens.size and int(tokens.max()) >= model.vocab_size:
            raise InputError(
                f"--tokenizer has {model.vocab_size} pieces, but sample {number} holds token {tokens.max()}; "
                "the dataset was made with another tokenizer"
            )
        print(f"--- sample {number}: {len(tokens)} tokens")
        print(model.decode(tokens.tolist()))
