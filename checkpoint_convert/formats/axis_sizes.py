"""Derive the sizes of the model's axes (``array_table.py``) from the shapes of its arrays.

PAXML's arrays keep every axis separate. Megatron's merge heads with their dimensions, so that their shapes do not show
N and D: the number of heads comes from CHECKPOINT.manifest.json, or for a run's own from RUN_DIR/config.json.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from checkpoint_convert.formats.array_table import Array, axis_groups
from checkpoint_convert.formats.step_files import benchmark_of_run
from foundation.errors import InputError
from foundation.outputs.manifest import manifest_path, read_manifest

BENCHMARK_HEADS = {12288: 96, 4096: 32}
"""Attention heads by hidden size if no file gives them: the benchmarks' models (reference facts, section 0; Llama 3.1
8B)."""

Shapes = Mapping[Array, tuple[int, ...]]


def paxml_axis_sizes(where: object, shapes: Shapes) -> dict[str, int]:
    """Return all sizes, derived from the shapes of a PAXML checkpoint's weights.

    Raises InputError, beginning with ``where``, if they contradict each other or are not those of a GPT-3 model.
    """
    sizes = _single_axes(where, {(array.paxml, array.paxml_axes): shape for array, shape in shapes.items()})
    if sizes["C"] != 3 or sizes["N"] * sizes["D"] != sizes["H"]:
        raise InputError(f"{where}: axes {sizes} are not those of a GPT-3 model (C = 3, N x D = H)")
    return sizes


def megatron_axis_sizes(where: object, shapes: Shapes, heads: Callable[[int], int]) -> dict[str, int]:
    """Return all sizes, derived from the shapes of Megatron's arrays.

    ``heads`` returns the attention heads of a model by its hidden size. Of a merged axis all sizes but one are known
    then. Raises InputError, beginning with ``where``, if the shapes contradict each other.
    """
    sizes = _single_axes(where, {(array.megatron, array.megatron_axes): shape for array, shape in shapes.items()})
    number = heads(sizes["H"])
    sizes.update(C=3, N=number, D=sizes["H"] // number)
    for array, shape in shapes.items():
        for axes, size in zip(axis_groups(array.megatron_axes), shape, strict=True):
            for axis in set(axes) - sizes.keys():
                sizes[axis] = size // math.prod(sizes.get(axis_name, 1) for axis_name in axes)
    for array, shape in shapes.items():
        if shape != (expected := array.megatron_shape(sizes)):
            raise InputError(f"{where}: {array.megatron} with shape {list(shape)}, expected it {list(expected)}")
    return sizes


def _single_axes(where: object, shapes: Mapping[tuple[str, str], tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes of the axes that occur unmerged somewhere, from shapes by name and layout."""
    sizes: dict[str, int] = {}
    for (name, layout), shape in shapes.items():
        groups = axis_groups(layout)
        if len(shape) != len(groups) or 0 in shape:
            raise InputError(f"{where}: {name} with shape {list(shape)}, expected the axes {layout}, none of size 0")
        for group, size in zip(groups, shape, strict=True):
            if len(group) == 1 and sizes.setdefault(group[0], size) != size:
                raise InputError(
                    f"{where}: {name} with shape {list(shape)}, but axis {group[0]} is {sizes[group[0]]} elsewhere"
                )
    return sizes


def attention_heads(folder: Path, hidden: int, option: int | None) -> int:
    """Return the heads of the model in ``folder``: ``given`` (``--heads``), the recorded ones, or the benchmark's.

    The manifest's inputs are not followed: other files may now lie at their paths. Raises InputError if no source gives
    the number, the sources contradict each other, or the number does not divide ``hidden``.
    """
    if read_manifest(folder) is None:
        folder = folder.resolve()  # the files beside a link's target
    benchmark, manifest = benchmark_of_run(folder), read_manifest(folder)
    recorded = {**manifest.facts, **manifest.options}.get("heads") if manifest else None
    if benchmark is not None:
        recorded = benchmark.model.num_attention_heads
    if recorded is not None and type(recorded) is not int:
        raise InputError(f"{manifest_path(folder)}: {str(recorded)[:40]!r} heads, expected a number; pass --heads")
    heads = option if option is not None else recorded or BENCHMARK_HEADS.get(hidden)
    if heads is None:
        raise InputError(
            f"{folder}: a checkpoint does not store the number of attention heads, and no manifest or config.json "
            f"beside it tells; pass --heads (hidden size {hidden})"
        )
    if recorded not in (None, heads):
        raise InputError(f"--heads {heads}: {folder} was made by a model of {recorded} heads; leave --heads out")
    if heads < 1 or hidden % heads:
        raise InputError(f"--heads {heads}: does not divide the hidden size {hidden} of {folder}")
    return heads
