"""View a PAXML checkpoint, box by box, as the Megatron checkpoint of its conversion, without writing it."""

import math
from dataclasses import replace

import ml_dtypes
import numpy as np

from checkpoint_convert.formats.array_table import (
    ARRAYS,
    KEPT_POSITIONS,
    REPEATS,
    Array,
    array_dtype,
    axis_groups,
    groups,
)
from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.checkpoint_files import Checkpoint
from checkpoint_convert.formats.step_files import is_counter
from checkpoint_convert.formats.stored_array import StoredArray, Values, ViewedArray
from foundation.errors import InputError

BF16 = np.dtype(ml_dtypes.bfloat16)


def as_megatron(paxml: Checkpoint, like: Checkpoint) -> Checkpoint:
    """Return a PAXML checkpoint's arrays under Megatron's names, in its axis order.

    Arrays that the table lacks keep their names; counters, which Megatron keeps elsewhere, are left out. If ``like``
    has FP32 master weights, the weights are rounded to BF16, and the unrounded ones are the master weights.
    """
    dtype = "bf16" if like.has_master_weights else "fp32"
    layers = next((a.shape[0] for name, a in paxml.arrays.items() if name.endswith("x_layers_0.layer_norm.scale")), 0)
    arrays: dict[str, StoredArray] = {}
    remaining = {name: stored for name, stored in paxml.arrays.items() if not is_counter(name)}
    for group in groups(dtype):
        for array in ARRAYS:
            names = [group.paxml_name(array, repeats) for repeats in (REPEATS, layers)]
            name = next((name for name in names if name in paxml.arrays), None)
            if name is None:
                continue
            view = _reordered(f"{paxml.path}/{name}", remaining.pop(name), array)
            for prefix in group.megatron:
                is_rounded = array_dtype(prefix, dtype) == "bfloat16"
                arrays[prefix + array.megatron] = _rounded(view) if is_rounded else view
    return Checkpoint(paxml.path, f"{paxml.format} in Megatron's order", {**arrays, **remaining}, paxml.unread)


def _reordered(where: str, stored: StoredArray, array: Array) -> ViewedArray:
    """Return the view of a PAXML array in Megatron's axes, including merged ones."""
    paxml_axes, merged, order = array.paxml_axes.split(), axis_groups(array.megatron_axes), array.permutation()
    if len(stored.shape) != len(order):
        raise InputError(f"{where}: shape {list(stored.shape)}, expected the axes {array.paxml_axes}")
    sizes = array.kept_sizes({"P": KEPT_POSITIONS, **dict(zip(paxml_axes, stored.shape, strict=True))})
    below = [math.prod(sizes[axis] for axis in axes[1:]) for axes in merged]
    """Number of values of each merged axis for each index of its slowest part."""
    slowest = [paxml_axes.index(axes[0]) for axes in merged]
    shape = tuple(sizes[axes[0]] * inner for axes, inner in zip(merged, below, strict=True))
    chunks = tuple(stored.chunks[first] * inner for first, inner in zip(slowest, below, strict=True))

    def read(box: Box) -> Values:
        """Read whole rows of each merged axis' slowest part, then cut them to the box."""
        source = [slice(0, sizes[axis]) for axis in paxml_axes]
        cut, rows = [], []
        for first, inner, side in zip(slowest, below, box, strict=True):
            start, stop = side.start // inner, -(-side.stop // inner)
            source[first] = slice(start, stop)
            rows.append((stop - start) * inner)
            cut.append(slice(side.start - start * inner, side.stop - start * inner))
        return stored.read(tuple(source)).transpose(order).reshape(rows)[tuple(cut)]

    return ViewedArray(shape, stored.dtype, chunks, [stored], read)


def _rounded(view: ViewedArray) -> ViewedArray:
    return replace(view, dtype=BF16, view=lambda box: view.read(box).astype(BF16))
