"""A model of 2 layers and its checkpoints. Sizes that 8 does not divide make few chunks, and few files are quick."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorstore as ts

from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG_SQ, array_dtype, chunk_shape, groups
from checkpoint_convert.formats.step_files import common_files, write_counters
from checkpoint_convert.formats.zarr_arrays import create_array
from model.gpt3_config import GPT3Config

GIB = 1 << 30
CONFIG = GPT3Config(
    num_layers=2,
    hidden_size=36,
    num_attention_heads=4,
    seq_length=40,
    vocab_size=200,
    padded_vocab_size=208,
    max_position_embeddings=208,
)
AXES = {"L": 2, "C": 3, "N": 4, "D": 9, "H": 36, "F": 144, "V": 208, "P": 208}
SIZES = "--seed 3 --layers 2 --hidden 36 --heads 4 --vocab 208 --values sane"
WHOLE = f"{SIZES} --pos 208 --compressor none --chunks whole"
ODD = f"{SIZES} --pos 2060 --compressor zstd --chunks odd"
"""More positions than are kept, chunks whose ends divide nothing."""

MakePaxml = Callable[[str], Path]
"""A PAXML checkpoint of these arguments of gen_paxml.py, to be read only."""
Arrays = Mapping[tuple[str, str], npt.NDArray[np.float32]]
"""Values in PAXML's layout, by the first of a group's Megatron prefixes and the array's Megatron name."""


def opened(path: Path) -> Any:
    """Open a zarr array."""
    return ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}}).result()


def read(path: Path) -> np.ndarray[Any, Any]:
    """Read the values of a zarr array."""
    values: np.ndarray[Any, Any] = opened(path).read().result()
    return values


def tiny_values(axes: Mapping[str, int] = AXES) -> Arrays:
    """Return weights large enough for attention to be far from uniform, and moments."""
    random = np.random.default_rng(3)
    values = {}
    for group in groups("fp32"):
        for array in ARRAYS:
            drawn = (0.3 * random.standard_normal(array.paxml_shape(axes))).astype(np.float32)
            values[group.megatron[0], array.megatron] = np.abs(drawn) if group.megatron[0] == EXP_AVG_SQ else drawn
    return values


def write_paxml(folder: Path, values: Arrays, axes: Mapping[str, int] = AXES, *, step: int | None = 4000) -> Path:
    """Write a PAXML checkpoint in gzip; ``step`` of its counters, None for none."""
    gzip = {"id": "gzip", "level": 1}
    for group in groups("fp32"):
        for array in ARRAYS:
            drawn = values[group.megatron[0], array.megatron]
            chunks = [max(1, size // 2) for size in drawn.shape]
            place = folder / (group.paxml_name(array, 96))
            create_array(place, drawn.shape, "float32", chunks, gzip).write(drawn).result()
    if step is not None:
        write_counters(folder, step, axes["L"])
    return folder


def write_megatron(
    folder: Path, values: Arrays, dtype: str, axes: Mapping[str, int] = AXES, *, step: int = 4000
) -> Path:
    """Write the Megatron zarr checkpoint of the same values, by NumPy alone."""
    for group in groups(dtype):
        for array in ARRAYS:
            shape = array.megatron_shape(axes)
            drawn = values[group.megatron[0], array.megatron]
            ours = drawn.transpose(array.permutation()).reshape(-1, *shape[1:])[: shape[0]]
            for prefix in group.megatron:
                kind = array_dtype(prefix, dtype)
                store = create_array(folder / (prefix + array.megatron), shape, kind, chunk_shape(shape))
                store.write(ours.astype(store.dtype.numpy_dtype)).result()
    for name, content in common_files(dtype, step).items():
        (folder / name).write_bytes(content)
    return folder


def parameter_shapes(axes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of the model, layer by layer."""
    return {
        array.parameter(layer): array.megatron_shape(axes)[array.stacked :]
        for layer in range(axes["L"])
        for array in ARRAYS
    }
