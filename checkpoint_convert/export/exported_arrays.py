"""The arrays of a checkpoint to export, by the table of its model: FP32 weights and moments, all layers in one array.

There are two formats: the Megatron zarr layout, and PyTorch's distributed checkpoint (DCP) that a run saves, with a
tensor for each layer under ``model/``, ``exp_avg/`` and ``exp_avg_sq/`` (train_state.py).
"""

import sys
from pathlib import Path

from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, EXP_AVG_SQ, MODELS, WEIGHTS, Array, array_of
from checkpoint_convert.formats.checkpoint_files import DCP, MEGATRON, Checkpoint, open_checkpoint
from checkpoint_convert.formats.common_files import fp32_weights_prefix
from checkpoint_convert.formats.stored_array import MEND, StoredArray, stacked
from checksums.common_file import COMMON, METADATA
from stage.errors import InputError
from stage.outputs.manifest import files_below, require_intact

MODEL = "model"
GROUPS = {MODEL: WEIGHTS, "exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}
"""Megatron's prefix for each group of a run's arrays; the master weights of a BF16 checkpoint are the model's FP32
ones."""
Exported = dict[Array, StoredArray]


def open_source(folder: Path) -> Checkpoint:
    """Open a checkpoint to export, and print the names of arrays in it that no export has.

    Raises InputError for another format, and if the checkpoint differs from its manifest.
    """
    checkpoint = open_checkpoint(folder)
    if checkpoint.format not in (MEGATRON, DCP):
        raise InputError(
            f"{folder}: {checkpoint.format}, expected a Megatron zarr checkpoint or a run's own "
            "(RUN_DIR/checkpoints/step_XXXXXXXX)"
        )
    require_intact(folder)
    known = {name for group in GROUPS for names in _names(checkpoint, group).values() for name in names}
    known |= {WEIGHTS + array.megatron for array in ARRAYS}  # beside the master weights
    if left_out := sorted({*checkpoint.arrays, *checkpoint.unread} - known):
        more = f" and {len(left_out) - 1:,} more" if len(left_out) > 1 else ""
        print(f"{folder}: left out, for the model has no such array: {left_out[0]}{more}", file=sys.stderr)
    return checkpoint


def model_of(checkpoint: Checkpoint) -> str:
    """Return the architecture, one of MODELS, whose names most parameters of a run's checkpoint have.

    A Megatron zarr checkpoint holds the first of MODELS.
    """
    parameters = {array_of(name.removeprefix(f"{MODEL}/"))[0] for name in checkpoint.arrays}
    return max(MODELS, key=lambda model: sum(array.megatron in parameters for array in MODELS[model]))


def exported_arrays(checkpoint: Checkpoint, group: str) -> Exported:
    """Return the arrays of ``group``, one of GROUPS.

    Raises InputError for an array that is missing, lacks chunks or is not FP32, and for layers of several shapes.
    """
    found: Exported = {}
    for array, names in _names(checkpoint, group).items():
        where = f"{checkpoint.path}: {names[0]}"
        if missing := [name for name in names if name not in checkpoint.arrays]:
            raise InputError(f"{checkpoint.path}: {missing[0]} is missing; {MEND}")
        parts = [checkpoint.arrays[name] for name in names]
        if len({part.shape for part in parts}) > 1:
            raise InputError(f"{where}: its layers have several shapes")
        stored = stacked(parts) if array.stacked and checkpoint.format == DCP else parts[0]
        if (dtype := stored.dtype.name) != "float32":
            raise InputError(f"{where}: {dtype}, expected float32")
        if lost := stored.on_disk()[1]:
            raise InputError(f"{where}: {lost:,} chunks have no file; {MEND}")
        found[array] = stored
    return found


def exported_files(checkpoint: Checkpoint, *groups: str) -> list[str]:
    """Return the names of the files that an export of ``groups`` depends on."""
    if checkpoint.format == DCP:
        return [name for name, _ in files_below(checkpoint.path)]
    folders = [name for group in groups for names in _names(checkpoint, group).values() for name in names]
    inner = [f"{folder}/{name}" for folder in folders for name, _ in files_below(checkpoint.path / folder)]
    return [METADATA, COMMON, *inner]


def _names(checkpoint: Checkpoint, group: str) -> dict[Array, list[str]]:
    """Return the names of the stored arrays that make up each array of the model: in a run's checkpoint, one per
    layer."""
    if checkpoint.format == MEGATRON:
        prefix = fp32_weights_prefix(checkpoint.path) if group == MODEL else GROUPS[group]
        return {array: [prefix + array.megatron] for array in ARRAYS}
    layers = len({array_of(name)[1] for name in checkpoint.arrays if name.startswith(f"{group}/")} - {None})
    return {
        array: [f"{group}/{array.parameter(layer)}" for layer in range(max(1, layers) if array.stacked else 1)]
        for array in MODELS[model_of(checkpoint)]
    }
