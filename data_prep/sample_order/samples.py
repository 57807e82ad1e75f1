"""Write the token windows that training or evaluation reads, in order, to a ``.npy`` file; say what is in them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.sample_order.token_windows import PADDING, TokenWindows, open_token_windows, parse_data_path
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.errors import InputError
from stage.outputs.manifest import require_intact
from stage.outputs.publish import published_file, require_same_kind
from stage.progress import progress
from stage.sizes import require_between

NPY = b"\x93NUMPY"


@dataclass(frozen=True)
class Samples:
    """Some samples of an order that is open."""

    windows: TokenWindows
    first: int
    count: int
    width: int
    """Tokens per sample."""

    def documents(self) -> Iterator[tuple[int, str]]:
        """Yield the number of each sample, and in words what it is made of."""
        for sample in range(self.first, self.first + self.count):
            parts = self.windows.documents(sample)
            yield sample, "; ".join(f"{p.prefix} document {p.document} tokens {p.begin} to {p.end - 1}" for p in parts)

    def texts(self, model: Tokenizer) -> Iterator[tuple[int, int, str]]:
        """Yield the number of each sample, its number of tokens, and its text. Raises InputError for a token beyond the
        model."""
        for sample in range(self.first, self.first + self.count):
            window = self.windows.window(sample)
            tokens = window[window != PADDING]
            if tokens.size and int(tokens.max()) >= model.vocab_size:
                raise InputError(
                    f"--tokenizer has {model.vocab_size} pieces, but sample {sample} holds token {tokens.max()}; "
                    "the dataset was made with another tokenizer"
                )
            yield sample, len(tokens), model.decode(tokens.tolist())


def open_samples(
    data_path: Sequence[str],
    *,
    sequence_length: int,
    num_samples: int,
    seed: int,
    first: int = 0,
    count: int | None = None,
    plus_one: bool = False,
) -> Samples:
    """Open the order of ``data_path`` as :func:`open_token_windows` does, and find samples ``first`` to ``first`` +
    ``count`` - 1 in it; ``count`` None: all that are requested from ``first`` on, or of the whole epoch.

    Raises InputError for samples that the order does not have, and for a dataset that is not as its manifest says.
    """
    for prefix in parse_data_path(data_path)[1]:
        require_intact(Path(prefix))
    windows = open_token_windows(
        data_path, sequence_length=sequence_length, num_samples=num_samples, seed=seed, plus_one=plus_one
    )
    available = len(windows)
    require_between(first, 0, math.inf, "--first")
    if count is None:
        count = max(0, (available if num_samples < 0 else num_samples) - first)
    require_between(count, 0, math.inf, "--count")
    if first + count > available:
        raise InputError(f"--first {first} --count {count}: the data path has samples 0 to {available - 1}")
    return Samples(windows, first, count, sequence_length + int(plus_one))


def write_samples(samples: Samples, output: Path) -> tuple[int, int]:
    """Write int64 [count, sequence_length (+1)] to ``output``; returns that shape.

    Tokens missing at the end of the evaluation set are -1. Raises InputError where ``output`` is something else than a
    ``.npy`` file.
    """
    require_same_kind(output, "--output", "a .npy file", lambda head: head.startswith(NPY))
    shape = (samples.count, samples.width)
    header = {"descr": "<i8", "fortran_order": False, "shape": shape}
    with (
        published_file(output) as partial,
        partial.open("wb") as file,
        progress("write samples", samples.count, "samples") as advance,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        for sample in range(samples.first, samples.first + samples.count):
            file.write(samples.windows.window(sample).astype("<i8").data)
            advance(1)
    return shape
