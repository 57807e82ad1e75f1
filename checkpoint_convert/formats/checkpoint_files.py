"""Open a checkpoint of any known format as named arrays; the format is recognised by the contents of its folder."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from checkpoint_convert.formats.array_table import ARRAYS, MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.safetensors_arrays import safetensors_arrays
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.step_files import (
    adam_step,
    is_counter,
    optimizer_settings,
    paxml_adam_step,
    run_steps,
)
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, open_zarr
from foundation.disk_answers import entries_in, file_is_there, folder_is_there
from foundation.errors import InputError
from foundation.regular_files import read_regular

PAXML, MEGATRON, ZARR = "PAXML zarr", "Megatron zarr", "zarr"
DCP, SAFETENSORS = "PyTorch distributed checkpoint", "safetensors"
DCP_INDEX = ".metadata"
TRACKER = "latest_checkpointed_iteration.txt"
"""File that names the iteration of Megatron-Core's torch_dist, which lies in a folder of its own below."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: its arrays by name."""

    path: Path
    format: str
    arrays: Mapping[str, StoredArray]
    unread: Mapping[str, str] = field(default_factory=dict)
    """Reasons why arrays beside the model's cannot be read, by name."""

    @property
    def has_master_weights(self) -> bool:
        return any(name.startswith(MASTER_WEIGHTS) for name in self.arrays)

    def steps(self) -> tuple[int | None, int | None]:
        """Return the steps since step 0, at the batch size of the latest steps, and Adam's step.

        Either is None if the checkpoint's files do not give it. Raises InputError if the files are damaged.
        """
        if self.format == PAXML:
            step = paxml_adam_step(self.path, self.arrays)
        elif self.format == MEGATRON:
            step = adam_step(self.path)
        elif self.format == DCP and (steps := run_steps(self.path)) != (None, None):
            return steps
        elif self.format == DCP:
            step = None
            with suppress(InputError):  # Megatron's own common.pt holds its command line too, as classes not built here
                step = adam_step(self.path)
        else:
            step = None
        return step, step

    def settings(self) -> dict[str, str] | None:
        """Return the settings of the optimizer's parameter groups by name; None if no file of plain values has them."""
        if self.format not in (MEGATRON, DCP):
            return None
        with suppress(InputError):  # as above
            return optimizer_settings(self.path)
        return None


def open_checkpoint(path: Path) -> Checkpoint:
    """Recognise and open a checkpoint; values are read later.

    Raises InputError if ``path`` holds no known format, or a damaged checkpoint.
    """
    if path.suffix == ".safetensors" and file_is_there(path):
        return Checkpoint(path, SAFETENSORS, safetensors_arrays(path))
    if not folder_is_there(path):
        neighbours = sorted(entry.parent.name for entry in path.parent.glob(f"*/{DCP_INDEX}"))
        hint = f"; beside it lie {', '.join(neighbours[-3:])}" if neighbours else ""  # a run removes old checkpoints
        raise InputError(f"{path}: no such folder or .safetensors file{hint}")
    path = _iteration_folder(path)
    if file_is_there(path / DCP_INDEX):
        from checkpoint_convert.formats.distributed_checkpoint import dcp_arrays  # PyTorch takes seconds to import

        return Checkpoint(path, DCP, dcp_arrays(path))
    entries = entries_in(path)
    if any(entry.name.endswith(".safetensors") for entry in entries):
        return Checkpoint(path, SAFETENSORS, safetensors_arrays(path))
    names = [entry.name for entry in entries if file_is_there(path / entry.name / METADATA_FILE)]
    if not names:
        raise InputError(
            f"{path}: holds no zarr arrays, no *.safetensors and no {DCP_INDEX} of a PyTorch distributed checkpoint"
        )
    form = MEGATRON if file_is_there(path / "metadata.json") else ZARR
    form = PAXML if any(name.startswith("mdl_vars.params.lm.") for name in names) else form
    files, arrays, unread = LocalFiles(path), {}, {}
    for name in names:
        try:
            arrays[name] = open_zarr(files, name)
        except InputError as error:
            if form == ZARR or _is_known(name):
                raise
            unread[name] = str(error)
    return Checkpoint(path, form, arrays, unread)


def _iteration_folder(path: Path) -> Path:
    """Return ``path``, or the folder below it that its tracker file names."""
    tracker = path / TRACKER
    if not file_is_there(tracker):
        return path
    text = read_regular(tracker, 1 << 10).decode(errors="replace").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InputError(f"{tracker}: {text[:40]!r}, expected an iteration; give the folder iter_XXXXXXX itself")
    return path / f"iter_{int(text):07d}"


def _is_known(name: str) -> bool:
    """Return whether an array is one of the model's, or a counter."""
    ends = tuple(end for array in ARRAYS for end in (f"{WEIGHTS}{array.megatron}", f"params.lm.{array.paxml}"))
    return name.endswith(ends) or is_counter(name)
