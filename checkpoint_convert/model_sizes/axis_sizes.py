"""Sizes of the model's axes (``array_table.py``), read off the shapes in a checkpoint.

PAXML's arrays have every axis. Megatron's merge heads and their dimensions, so that N and D are not to be seen: the
heads come from elsewhere, or are not asked for.
"""

from collections.abc import Sequence
from pathlib import Path

from checkpoint_convert.formats.array_table import ARRAYS, LAYERS, REPEATS, groups
from checkpoint_convert.formats.zarr_arrays import open_array
from checkpoint_convert.model_sizes.attention_heads import attention_heads
from checkpoint_convert.model_sizes.parameters import Shapes, layer_name, parameter_shapes
from stage.errors import InputError

WORDS, POSITIONS = "embedding.word_embeddings.weight", "embedding.position_embeddings.weight"
FEED_FORWARD_WEIGHT = "encoder.layers.mlp.dense_h_to_4h.weight"
FEED_FORWARD_BIAS = "encoder.layers.mlp.dense_h_to_4h.bias"


def paxml_axis_sizes(source: Path) -> dict[str, int]:
    """Return all sizes, read off the weights of a PAXML checkpoint.

    Raises InputError where an array is missing, they contradict each other, or are not those of a GPT-3 model.
    """
    sizes: dict[str, int] = {}
    for array in ARRAYS:
        path = source / (groups("fp32")[0].paxml_prefix(array, REPEATS) + array.paxml)
        shape = open_array(path).shape
        axes = array.paxml_axes.split()
        if len(shape) != len(axes):
            raise InputError(f"{path}: shape {list(shape)}, expected the axes {array.paxml_axes}")
        if 0 in shape:
            raise InputError(f"{path}: shape {list(shape)}, expected no axis of size 0")
        for axis, size in zip(axes, shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise InputError(f"{path}: shape {list(shape)}, but axis {axis} is {sizes[axis]} in other arrays")
    if sizes["C"] != 3 or sizes["N"] * sizes["D"] != sizes["H"]:
        raise InputError(f"{source}: axes {sizes} are not those of a GPT-3 model (C = 3, N x D = H)")
    return sizes


def megatron_axis_sizes(source: Path, weights: str, heads: int | None) -> dict[str, int]:
    """Return all sizes, read off the arrays of a Megatron zarr checkpoint that begin with ``weights``.

    Raises InputError where one of three arrays is missing, or nobody says how many heads there are
    (:func:`attention_heads`). Whether all arrays agree shows when they are opened.
    """
    words, positions, feed_forward = (
        open_array(source / (weights + name)).shape for name in (WORDS, POSITIONS, FEED_FORWARD_WEIGHT)
    )
    for name, shape, axes in ((WORDS, words, 2), (POSITIONS, positions, 2), (FEED_FORWARD_WEIGHT, feed_forward, 3)):
        if len(shape) != axes or 0 in shape:
            raise InputError(f"{source / (weights + name)}: shape {list(shape)}, expected {axes} axes, none of size 0")
    sizes = _without_heads(words, positions, layers=feed_forward[0], feed_forward=feed_forward[1])
    heads = attention_heads(source, sizes["H"], heads)
    return {**sizes, "C": 3, "N": heads, "D": sizes["H"] // heads}


def parameter_axis_sizes(folder: Path, shapes: Shapes) -> dict[str, int]:
    """Return the sizes but C, N and D, read off the shapes of parameters by their names (``parameters.py``).

    Raises InputError, naming ``folder`` and the parameter, when one is missing, unknown or does not fit the others.
    """
    word, position, bias = (
        _shape(folder, shapes, name, dimensions)
        for name, dimensions in (
            (WORDS, 2),
            (POSITIONS, 2),
            (layer_name(FEED_FORWARD_BIAS, 0), 1),
        )
    )
    layers = len({name.split(".")[2] for name in shapes if name.startswith(LAYERS)})
    sizes = _without_heads(word, position, layers=layers, feed_forward=bias[0])
    expected = parameter_shapes(sizes)
    for name in [*expected, *shapes]:
        if shapes.get(name) != expected.get(name):
            raise InputError(f"{folder}: {name} {_described(shapes, name)}, expected it {_described(expected, name)}")
    return sizes


def _without_heads(words: Sequence[int], positions: Sequence[int], *, layers: int, feed_forward: int) -> dict[str, int]:
    """Return the sizes that both embeddings' shapes and a layer's arrays tell."""
    return {"L": layers, "H": words[1], "F": feed_forward, "V": words[0], "P": positions[0]}


def _shape(folder: Path, shapes: Shapes, name: str, dimensions: int) -> tuple[int, ...]:
    shape = shapes.get(name, ())
    if len(shape) != dimensions:
        raise InputError(f"{folder}: {name} {_described(shapes, name)}, expected it with {dimensions} axes")
    return shape


def _described(shapes: Shapes, name: str) -> str:
    return f"with shape {list(shapes[name])}" if name in shapes else "is missing"
