"""A checkpoint of any of the formats met here, as named arrays; what it is follows from what is in its folder."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from checkpoint_convert.formats.array_table import (
    ARRAYS,
    KEPT_POSITIONS,
    MASTER_WEIGHTS,
    REPEATS,
    Array,
    array_dtype,
    groups,
)
from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.byte_ranges import Values
from checkpoint_convert.formats.paxml_counters import is_counter
from checkpoint_convert.formats.safetensors_arrays import safetensors_arrays
from checkpoint_convert.formats.stored_array import StoredArray, zarr_array
from checkpoint_convert.formats.torch_files.dcp_arrays import METADATA, dcp_arrays
from checkpoint_convert.formats.torch_files.torch_dist import is_torch_dist, iteration_folder
from stage.errors import InputError

PAXML, MEGATRON, ZARR = "PAXML zarr", "Megatron zarr", "zarr"
DCP, SAFETENSORS = "PyTorch distributed checkpoint", "safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Arrays by name."""

    path: Path
    format: str
    arrays: Mapping[str, StoredArray]


def open_checkpoint(path: Path) -> Checkpoint:
    """Recognise and open a checkpoint; values are read later.

    Raises InputError where ``path`` holds no format known here, or a damaged one.
    """
    if path.suffix == ".safetensors" and path.is_file():
        return Checkpoint(path, SAFETENSORS, safetensors_arrays(path))
    if not path.is_dir():
        raise InputError(f"{path}: no such folder or .safetensors file")
    if is_torch_dist(path):
        path = iteration_folder(path)
    if (path / METADATA).is_file():
        return Checkpoint(path, DCP, dcp_arrays(path))
    if any(path.glob("*.safetensors")):
        return Checkpoint(path, SAFETENSORS, safetensors_arrays(path))
    names = sorted(entry.parent.name for entry in path.glob("*/.zarray"))
    if not names:
        raise InputError(
            f"{path}: holds no zarr arrays, no *.safetensors and no {METADATA} of a PyTorch distributed checkpoint"
        )
    return Checkpoint(path, _zarr_format(path, names), {name: zarr_array(path / name) for name in names})


def _zarr_format(path: Path, names: Sequence[str]) -> str:
    if any(name.startswith("mdl_vars.params.lm.") for name in names):
        return PAXML
    return MEGATRON if (path / "metadata.json").is_file() else ZARR


def as_megatron(paxml: Checkpoint, like: Checkpoint) -> Checkpoint:
    """A PAXML checkpoint's arrays under Megatron's names, in its axis order; what the table lacks keeps its name,
    and counters, which Megatron keeps elsewhere, are left out.

    Where ``like`` has FP32 master weights, the weights are rounded to BF16 and are their own master weights.
    """
    dtype = "bf16" if any(name.startswith(MASTER_WEIGHTS) for name in like.arrays) else "fp32"
    layers = next((a.shape[0] for name, a in paxml.arrays.items() if name.endswith("x_layers_0.layer_norm.scale")), 0)
    arrays, used = {}, set()
    for group in groups(dtype):
        for array in ARRAYS:
            names = [group.paxml_prefix(array, repeats) + array.paxml for repeats in (REPEATS, layers)]
            name = next((name for name in names if name in paxml.arrays), None)
            if name is None:
                continue
            used.add(name)
            for prefix in group.megatron:
                view = _reordered(paxml.path / name, paxml.arrays[name], array)
                rounded = array_dtype(prefix, dtype) == "bfloat16"
                arrays[prefix + array.megatron] = _rounded(view) if rounded else view
    others = (name for name in paxml.arrays if name not in used and not is_counter(name))
    arrays.update({name: paxml.arrays[name] for name in others})
    return Checkpoint(paxml.path, f"{paxml.format} in Megatron's order", arrays)


def _reordered(path: Path, stored: StoredArray, array: Array) -> StoredArray:
    """The view of a PAXML array whose axes are Megatron's, merged ones included."""
    order, merged = array.permutation(), array.megatron_groups()
    if len(stored.shape) != len(order):
        raise InputError(f"{path}: shape {list(stored.shape)}, expected the axes {array.paxml_axes}")
    shape, chunks = [], []
    for axes in merged:
        first, *inner = (array.paxml_axes.split().index(axis) for axis in axes)
        rows = min(stored.shape[first], KEPT_POSITIONS) if axes[0] == "P" else stored.shape[first]
        below = math.prod(stored.shape[axis] for axis in inner)
        shape.append(rows * below)
        chunks.append(stored.chunks[first] * below)

    def read(box: Box) -> Values:
        """Reads whole rows of a merged axis' slowest part, then cuts."""
        source: list[slice] = [slice(0, 0)] * len(order)
        cut = []
        for axes, part in zip(merged, box, strict=True):
            first, *inner = (array.paxml_axes.split().index(axis) for axis in axes)
            below = math.prod(stored.shape[axis] for axis in inner)
            source[first] = slice(part.start // below, -(-part.stop // below))
            for axis in inner:
                source[axis] = slice(0, stored.shape[axis])
            cut.append(slice(part.start - source[first].start * below, part.stop - source[first].start * below))
        values = stored.read(tuple(source)).transpose(order)
        ends, at = [], 0
        for axes in merged:
            ends.append(math.prod(values.shape[at : at + len(axes)]))
            at += len(axes)
        return values.reshape(ends)[tuple(cut)]

    return dataclasses.replace(stored, shape=tuple(shape), chunks=tuple(chunks), read=read)


def _rounded(stored: StoredArray) -> StoredArray:
    dtype = np.dtype(ml_dtypes.bfloat16)
    return dataclasses.replace(stored, dtype=dtype, read=lambda box: stored.read(box).astype(dtype))
