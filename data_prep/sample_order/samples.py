"""Write the token windows that training or evaluation reads, in order, to a ``.npy`` file; show their contents."""

import math
from pathlib import Path

import numpy as np

from data_prep.sample_order.token_windows import PADDING, TokenWindows
from data_prep.tokenizing.tokenizer import AnyTokenizer
from stage.errors import InputError
from stage.outputs.publish import published_file, require_same_kind
from stage.progress import progress
from stage.sizes import require_between

NPY = b"\x93NUMPY"


def chosen_samples(windows: TokenWindows, first: int, count: int | None, num_samples: int) -> range:
    """Return the numbers of ``count`` samples from ``first`` on.

    ``count`` None: all samples requested by ``num_samples``, or of the whole epoch. Raises InputError for samples that
    the order does not have.
    """
    available = len(windows)
    require_between(first, 0, math.inf, "--first")
    if count is None:
        count = max(0, (available if num_samples < 0 else num_samples) - first)
    require_between(count, 0, math.inf, "--count")
    if first + count > available:
        raise InputError(f"--first {first} --count {count}: the data path has samples 0 to {available - 1}")
    return range(first, first + count)


def write_samples(windows: TokenWindows, samples: range, width: int, output: Path) -> tuple[int, int]:
    """Write int64 [count, width] to ``output``, where ``width`` is the tokens per sample; return that shape.

    Missing tokens at the end of the evaluation set are -1. Raises InputError if ``output`` exists and is no ``.npy``
    file.
    """
    require_same_kind(output, "--output", "a .npy file", lambda head: head.startswith(NPY))
    shape = (len(samples), width)
    header = {"descr": "<i8", "fortran_order": False, "shape": shape}
    with (
        published_file(output) as partial,
        partial.open("wb") as file,
        progress("write samples", len(samples), "samples") as advance,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        for sample in samples:
            file.write(windows.window(sample).astype("<i8").data)
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
