"""The counters of a PAXML checkpoint: zarr arrays beside the 48 of weights and moments (docs/facts/reference.md f.2).

    step                                  uint32, no axes: the training step
    opt_states_0.no_prefix_I.count        int32, no axes, for each of the optimizer's transformations
    opt_states_0.p#96#i-1_I.count         int32, one per layer: the same for the stacked arrays

The counter of transformation 2, which has the moments, is Adam's step. Megatron's layout keeps that step in
``common.pt`` and has no place for the other counters.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from checkpoint_convert.formats.array_table import REPEATS
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.common_files import LARGEST_STEP
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, metadata_text
from stage.errors import InputError
from stage.sizes import require_between

TRANSFORMATIONS = 4
STEP = "step"
KINDS = (r".*_2\.count", r".*\.count", STEP)
"""Patterns of counters in the order of their trust: Adam's moments are the state of transformation 2."""
COUNTER = re.compile(r"step|opt_states_\d+\.(no_prefix|p#\d+#i-1)_\d+\.count", re.ASCII)
MOST_VALUES = 1 << 16
"""Most values of one counter, which has one per layer."""


def is_counter(name: str) -> bool:
    """Return whether an array of a PAXML checkpoint is a counter rather than weights or moments."""
    return COUNTER.fullmatch(name) is not None


def paxml_adam_step(where: object, arrays: Mapping[str, StoredArray]) -> int | None:
    """Return Adam's step from the counters among the ``arrays`` of the checkpoint ``where``; None if there is no
    counter.

    Raises InputError if a counter is damaged, or they differ: Megatron has one for all layers.
    """
    for kind in KINDS:
        names = [name for name in sorted(arrays) if is_counter(name) and re.fullmatch(kind, name)]
        values = {name: set(_values(where, name, arrays[name])) for name in names}
        found = set().union(*values.values())
        if len(found) > 1:
            shown = "; ".join(f"{name} {sorted(some)[:4]}" for name, some in values.items())
            raise InputError(f"{where}: its counters of the optimizer's steps differ ({shown[:300]}); it is not whole")
        for step in found:
            require_between(step, 0, LARGEST_STEP, f"{where}/{names[0]}: Adam's step")
            return step
    return None


def _values(where: object, name: str, array: StoredArray) -> list[int]:
    if array.dtype.kind not in "iu" or len(array.shape) > 1 or sum(array.shape) > MOST_VALUES:
        raise InputError(
            f"{where}/{name}: {list(array.shape)} {array.dtype.name}, expected a whole number, or one per layer"
        )
    values: list[int] = array.read(whole_box(array.shape)).reshape(-1).tolist()
    return values


def counter_shapes(layers: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and dtype by name of all counters of the benchmark's checkpoint, for a model of ``layers``
    layers."""
    shapes: dict[str, tuple[tuple[int, ...], str]] = {STEP: ((), "uint32")}
    for number in range(TRANSFORMATIONS):
        shapes[f"opt_states_0.no_prefix_{number}.count"] = ((), "int32")
        shapes[f"opt_states_0.p#{REPEATS}#i-1_{number}.count"] = ((layers,), "int32")
    return shapes


def counter_files(step: int, layers: int) -> dict[str, bytes]:
    """Return the files of all counters by name, each with the value ``step``."""
    files = {}
    for name, (shape, dtype) in counter_shapes(layers).items():
        files[f"{name}/{METADATA_FILE}"] = metadata_text(shape, dtype, shape)
        files[f"{name}/0"] = np.full(shape, step, np.dtype(dtype).newbyteorder("<")).tobytes()
    return files


def write_counters(folder: Path, step: int, layers: int) -> None:
    """Write the files of all counters."""
    for name, content in counter_files(step, layers).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
