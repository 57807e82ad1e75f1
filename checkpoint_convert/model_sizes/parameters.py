"""The model's parameters: their names (``encoder.layers.7.mlp.…``), arrays and shapes."""

from collections.abc import Mapping

from checkpoint_convert.formats.array_table import ARRAYS, LAYERS, Array

Shapes = Mapping[str, tuple[int, ...]]


def parameters(layers: int) -> dict[str, Array]:
    """Return the array that holds each parameter, layer by layer, after those that no layer owns."""
    found = {array.megatron: array for array in ARRAYS if not array.stacked}
    for layer in range(layers):
        found.update({layer_name(array.megatron, layer): array for array in ARRAYS if array.stacked})
    return found


def layer_name(array: str, layer: int) -> str:
    """Return a parameter's name: 'encoder.layers.mlp.x', 7 -> 'encoder.layers.7.mlp.x'."""
    return f"{LAYERS}{layer}.{array.removeprefix(LAYERS)}"


def shapes_of_layers(array: Array, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the parameters in an array of ``shape``: each layer of a stacked one, or itself."""
    if not array.stacked:
        return {array.megatron: shape}
    return {layer_name(array.megatron, layer): shape[1:] for layer in range(shape[0] if shape else 0)}


def parameter_shapes(sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a model with these sizes (``axis_sizes.py``)."""
    one_head = {**sizes, "C": 3, "N": 1, "D": sizes["H"]}  # N and D occur as their product only
    return {
        name: array.megatron_shape(one_head)[1 if array.stacked else 0 :]
        for name, array in parameters(sizes["L"]).items()
    }
