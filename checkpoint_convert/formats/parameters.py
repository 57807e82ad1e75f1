"""The model's parameters by name (``encoder.layers.7.mlp.…``), and what their shapes tell about the model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkpoint_convert.formats.array_table import ARRAYS, LAYERS, Array
from stage.errors import InputError
from stage.manifest import read_manifest

BENCHMARK_HEADS = {12288: 96}
"""Attention heads by hidden size where nothing else tells them: the benchmark's model (docs/facts/reference.md 0)."""

Shapes = Mapping[str, tuple[int, ...]]


def parameters(layers: int) -> dict[str, Array]:
    """The array that holds each parameter, layer by layer, after those that no layer owns."""
    found = {array.megatron: array for array in ARRAYS if not array.stacked}
    for layer in range(layers):
        found.update({layer_name(array.megatron, layer): array for array in ARRAYS if array.stacked})
    return found


def layer_name(array: str, layer: int) -> str:
    """'encoder.layers.mlp.x', 7 -> 'encoder.layers.7.mlp.x'."""
    return f"{LAYERS}{layer}.{array.removeprefix(LAYERS)}"


def sizes_of_parameters(folder: Path, shapes: Shapes) -> dict[str, int]:
    """Size of each axis of ``arrays.py`` but N and D, which the shapes of merged axes do not tell.

    Raises InputError, naming ``folder`` and the parameter, when one is missing, unknown or does not fit the others.
    """
    word, position, bias = (
        _shape(folder, shapes, name, dimensions)
        for name, dimensions in (
            ("embedding.word_embeddings.weight", 2),
            ("embedding.position_embeddings.weight", 2),
            (layer_name("encoder.layers.mlp.dense_h_to_4h.bias", 0), 1),
        )
    )
    layers = len({name.split(".")[2] for name in shapes if name.startswith(LAYERS)})
    sizes = {"L": layers, "H": word[1], "F": bias[0], "V": word[0], "P": position[0]}
    expected = parameter_shapes(sizes)
    for name in [*expected, *shapes]:
        if shapes.get(name) != expected.get(name):
            raise InputError(f"{folder}: {name} {_described(shapes, name)}, expected it {_described(expected, name)}")
    return sizes


def parameter_shapes(sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter of a model with these sizes (:func:`model_sizes`)."""
    one_head = {**sizes, "C": 3, "N": 1, "D": sizes["H"]}  # N and D occur as their product only
    return {
        name: array.megatron_shape(one_head)[1 if array.stacked else 0 :]
        for name, array in parameters(sizes["L"]).items()
    }


def attention_heads(folder: Path, hidden: int, given: int | None) -> int:
    """Number of heads of the model in ``folder``: ``given`` (``--heads``), what was recorded, or the benchmark's.

    Raises InputError when nobody says it, the sources contradict each other, or it does not divide ``hidden``.
    """
    recorded = _heads_in_run(folder) or _heads_in_manifests(folder)
    heads = given if given is not None else recorded or BENCHMARK_HEADS.get(hidden)
    if heads is None:
        raise InputError(
            f"{folder}: a checkpoint does not store the number of attention heads, and no manifest or config.json "
            f"near it tells; pass --heads (hidden size {hidden})"
        )
    if recorded not in (None, heads):
        raise InputError(f"--heads {heads}: {folder} was made by a model of {recorded} heads; leave --heads out")
    if heads < 1 or hidden % heads:
        raise InputError(f"--heads {heads}: does not divide the hidden size {hidden} of {folder}")
    return heads


def _heads_in_run(folder: Path) -> int | None:
    """From ``RUN_DIR/config.json`` of a run's own checkpoint ``RUN_DIR/checkpoints/step_XXXXXXXX``."""
    path = folder.absolute().parent.parent / "config.json"
    if folder.absolute().parent.name != "checkpoints" or not path.is_file():
        return None
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["benchmark"]["model"]["num_attention_heads"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a run's configuration ({error}); copy {folder} elsewhere") from error


def _heads_in_manifests(output: Path) -> int | None:
    """From the options of the stage that made ``output``, or of one that made its inputs."""
    manifest = read_manifest(output)
    if manifest is None:
        return None
    recorded: Any = manifest.options.get("heads")
    if recorded is not None:
        return int(recorded)
    found = (_heads_in_manifests(Path(record.name)) for record in manifest.inputs)
    return next((heads for heads in found if heads is not None), None)


def _shape(folder: Path, shapes: Shapes, name: str, dimensions: int) -> tuple[int, ...]:
    shape = shapes.get(name, ())
    if len(shape) != dimensions:
        raise InputError(f"{folder}: {name} {_described(shapes, name)}, expected it with {dimensions} axes")
    return shape


def _described(shapes: Shapes, name: str) -> str:
    return f"with shape {list(shapes[name])}" if name in shapes else "is missing"
