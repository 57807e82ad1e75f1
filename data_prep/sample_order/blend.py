"""Mix several datasets by weight (docs/facts/reference.md b.1, b.4; Megatron-Core: docs/facts/llama31_8b.md 9.7)."""

import functools
import math
import operator
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from data_prep.sample_order.kept_index import INDEX_VERSION, STAGE, IndexArray, Keep, NewArray, in_memory
from foundation.errors import InputError
from foundation.outputs.digest import md5_text
from foundation.outputs.manifest import Recipe

MARGIN = 1.005
BLOCK = 1 << 20


def normalized(weights: Sequence[float]) -> list[float]:
    """Return the weights divided by their sum, in plain float64 as in the reference.

    Raises InputError for weights below 0 and for a sum that is not positive.
    """
    if not weights or any(not math.isfinite(weight) or weight < 0 for weight in weights) or sum(weights) <= 0:
        raise InputError(f"dataset weights {list(weights)}: expected numbers >= 0 with a positive sum")
    total = functools.reduce(operator.add, weights)  # the sum() of Python 3.12 rounds otherwise
    return [weight / total for weight in weights]


def normalized_twice(weights: Sequence[float]) -> list[float]:
    """Return the weights divided by their sum, twice, as Megatron-Core does; NumPy's sum rounds otherwise than a loop.

    Raises InputError as :func:`normalized` does.
    """
    normalized(weights)
    shares = np.array(weights, np.float64)
    for _ in range(2):
        shares = shares / np.sum(shares)
    return [float(share) for share in shares]


def megatron_core_samples(num_samples: int, weights: Sequence[float]) -> tuple[list[int], int]:
    """Return the number of samples to request of each dataset, and the size of the blend, as Megatron-Core has them.

    Raises InputError for a whole epoch (-1) of a blend, which Megatron-Core does not have.
    """
    if num_samples < 0:
        raise InputError("--num-samples -1: a blend in shuffled order has no whole epoch; give a number of samples")
    shares = np.array(weights, np.float64)
    samples = [math.ceil(num_samples * float(share)) for share in shares / np.sum(shares)]
    return [math.ceil(count * MARGIN) for count in samples], sum(samples)


def samples_per_dataset(num_samples: int, weights: Sequence[float]) -> list[int]:
    """Return the number of samples to request of each dataset, with the reference's margin of half a percent.

    ``num_samples`` < 0 asks for one whole epoch of each. The reference multiplies the -1 by the weight and rounds up,
    so that two validation sets at 0.5 ask for 0 samples (docs/facts/reference.md j.16); here it stays -1.
    """
    if num_samples < 0:
        return [-1] * len(weights)
    return [math.ceil(num_samples * weight * MARGIN) for weight in weights]


def blend_index(weights: Sequence[float], size: int, keep: Keep = in_memory) -> tuple[IndexArray, IndexArray]:
    """Return, for each of ``size`` blended samples, its dataset [size] uint8 and its number there [size] int64.

    Sample s goes to the dataset that lags furthest behind its share, weight * max(s, 1) - samples so far, the first
    of those that lag equally. ``weights`` sum to 1. Raises InputError for more datasets than uint8 numbers.
    """
    if len(weights) > 255:
        raise InputError(f"{len(weights)} datasets in one blend; at most 255")
    options = {"weights": [float(weight) for weight in weights], "size": size}
    recipe = Recipe(STAGE, options, [], bytes_version=INDEX_VERSION)
    rounded = "_".join(f"{weight:.4g}" for weight in weights)[:80]
    exact = md5_text(repr(recipe.options["weights"]))[:12]
    dataset = functools.cache(lambda: _choose(weights, size))
    index = keep(
        f"blend_{rounded}_{exact}_{size}samples",
        recipe,
        {
            "dataset_index": NewArray(np.uint8, (size,), dataset),
            "dataset_sample_index": NewArray(np.int64, (size,), lambda: _count_through(dataset(), len(weights))),
        },
    )
    return index["dataset_index"], index["dataset_sample_index"]


def _choose(weights: Sequence[float], size: int) -> npt.NDArray[np.uint8]:
    """Return the dataset of each sample [size], block by block."""
    dataset = np.empty(size, np.uint8)
    counts = [0] * len(weights)
    for start in range(0, size, BLOCK):
        block = slice(start, min(start + BLOCK, size))
        block_datasets = _choose_of_two(weights, counts[0], block) if len(weights) == 2 else None
        if block_datasets is None:
            block_datasets = _choose_one_by_one(weights, counts, block)
        dataset[block] = block_datasets
        counts = [count + int(np.count_nonzero(block_datasets == index)) for index, count in enumerate(counts)]
    return dataset


def _count_through(dataset: npt.NDArray[np.uint8], num_datasets: int) -> npt.NDArray[np.int64]:
    """Return, for each blended sample, the number of earlier samples of the same dataset [size]."""
    sample = np.empty(len(dataset), np.int64)
    counts = [0] * num_datasets
    for start in range(0, len(dataset), BLOCK):
        block = slice(start, start + BLOCK)
        for index in range(num_datasets):
            positions = np.flatnonzero(dataset[block] == index)
            sample[block][positions] = np.arange(counts[index], counts[index] + len(positions))
            counts[index] += len(positions)
    return sample


def _choose_one_by_one(weights: Sequence[float], counts: Sequence[int], block: slice) -> npt.NDArray[np.uint8]:
    """Choose by the plain rule: each choice depends on all before it. Takes about a microsecond per sample and
    dataset."""
    counts = list(counts)
    datasets = bytearray(block.stop - block.start)
    for s in range(block.start, block.stop):
        x = max(float(s), 1.0)
        errors = [weight * x - count for weight, count in zip(weights, counts, strict=True)]
        best = errors.index(max(errors))
        counts[best] += 1
        datasets[s - block.start] = best
    return np.frombuffer(datasets, np.uint8)


def _choose_of_two(weights: Sequence[float], count: int, block: slice) -> npt.NDArray[np.uint8] | None:
    """Choose between two datasets by the same rule, for a whole block at once; return None if the shortcut does not
    hold.

    With two datasets the state before sample s is one number, c: the samples given to the first one so far. It gets
    sample s if and only if c is at most a threshold T(s), which lies within 1 of floor(weight * x) and is found here by
    trying, in the same float64 arithmetic. As long as T rises by at most 1 a sample, c after sample s is the largest T
    + 1 up to s.
    """
    s = np.arange(block.start, block.stop, dtype=np.int64)
    x = np.maximum(s.astype(np.float64), 1.0)
    share_0, share_1 = weights[0] * x, weights[1] * x
    floor = np.floor(share_0).astype(np.int64)
    threshold = floor - 2
    for c in (floor - 1, floor, floor + 1):
        threshold += (share_0 - c) >= (share_1 - (s - c))
    counts_after = np.maximum.accumulate(np.maximum(threshold + 1, count))
    steps = np.diff(counts_after, prepend=count)
    if steps.max() > 1:
        return None
    datasets: npt.NDArray[np.uint8] = (steps == 0).astype(np.uint8)
    return datasets
