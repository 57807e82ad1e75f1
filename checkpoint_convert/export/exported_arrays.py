"""The common part of exports: a checkpoint's arrays by the table of its model, and tasks that write a file each.

The arrays are FP32 weights and moments, all layers in one array. They come from two formats: the Megatron zarr layout,
and PyTorch's distributed checkpoint (DCP) that a run saves, with a tensor for each layer under ``model/``, ``exp_avg/``
and ``exp_avg_sq/`` (train_state.py).
"""

import hashlib
import io
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, EXP_AVG_SQ, MODELS, WEIGHTS, Array, array_of
from checkpoint_convert.formats.checkpoint_files import DCP, MEGATRON, Checkpoint, open_checkpoint
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.step_files import fp32_weights_prefix
from checkpoint_convert.formats.stored_array import MEND, StoredArray, stacked
from checkpoint_convert.formats.summed_output import FileTask
from checksums.common_file import COMMON, METADATA
from foundation.errors import InputError
from foundation.outputs.manifest import files_below, require_intact
from foundation.outputs.output_parts import NewPart
from foundation.outputs.resumable_output import ResumableOutput
from foundation.progress import Meter

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
    used_names = {name for group in GROUPS for names in _names(checkpoint, group).values() for name in names}
    used_names |= {WEIGHTS + array.megatron for array in ARRAYS}  # beside the master weights
    if left_out := sorted({*checkpoint.arrays, *checkpoint.unread} - used_names):
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
    exported: Exported = {}
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
        if lost := stored.missing_chunks:
            raise InputError(f"{where}: {lost:,} chunks have no file; {MEND}")
        exported[array] = stored
    return exported


def exported_files(checkpoint: Checkpoint, groups: Sequence[str]) -> LocalFiles:
    """Return the files that an export of ``groups`` depends on."""
    files = LocalFiles(checkpoint.path)
    if checkpoint.format == DCP:
        files.ask(name for name, _ in files_below(checkpoint.path))
        return files
    folders = [name for group in groups for names in _names(checkpoint, group).values() for name in names]
    inner = [f"{folder}/{name}" for folder in folders for name, _ in files_below(checkpoint.path / folder)]
    files.ask([METADATA, COMMON, *inner])
    return files


class HashingFile(io.BufferedWriter):
    """A file that is written from its beginning to its end, with its MD5."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "w"))
        self.md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: Any) -> int:
        self.md5.update(data)
        return super().write(data)


def file_task(name: str, write: Callable[[IO[bytes]], None], size: int) -> FileTask:
    """Return the task that writes one file of the export, whose values have ``size`` bytes, by ``write``."""
    return FileTask([name], size, partial(_written, name, write))


def _written(name: str, write: Callable[[IO[bytes]], None], work: ResumableOutput, meter: Meter) -> list[NewPart]:
    """Write one file. Raises OSError with the file's name, for example for a full disk."""
    path = work.new_path()
    try:
        with HashingFile(path) as writer:
            write(writer)
    except (OSError, RuntimeError) as error:
        reason = error.__context__ if isinstance(error, RuntimeError) else error  # torch.save raises its own upon it
        if not isinstance(reason, OSError) or reason.filename is not None:
            raise
        raise OSError(reason.errno, reason.strerror, str(path)) from error
    return [NewPart(name, path, writer.md5.hexdigest())]


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
