"""A checkpoint of any of the formats met here, as named arrays, recognised by the contents of its folder."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from checkpoint_convert.formats.array_table import ARRAYS, MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.common_files import adam_step
from checkpoint_convert.formats.paxml_counters import is_counter, paxml_adam_step
from checkpoint_convert.formats.safetensors_arrays import safetensors_arrays
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, zarr_array
from checkpoint_convert.model_sizes.run_files import run_steps
from stage.errors import InputError
from stage.regular_files import read_regular

PAXML, MEGATRON, ZARR = "PAXML zarr", "Megatron zarr", "zarr"
DCP, SAFETENSORS = "PyTorch distributed checkpoint", "safetensors"
DCP_INDEX = ".metadata"
TRACKER = "latest_checkpointed_iteration.txt"
"""Names the iteration of Megatron-Core's torch_dist, which lies in a folder of its own below."""


@dataclass(frozen=True)
class Checkpoint:
    """Arrays by name."""

    path: Path
    format: str
    arrays: Mapping[str, StoredArray]
    unread: Mapping[str, str] = field(default_factory=dict)
    """Arrays beside the model's that cannot be read, and why."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Recognise and open a checkpoint; values are read later.

    Raises InputError where ``path`` holds no format known here, or a damaged one.
    """
    if path.suffix == ".safetensors" and path.is_file():
        return Checkpoint(path, SAFETENSORS, safetensors_arrays(path))
    if not path.is_dir():
        raise InputError(f"{path}: no such folder or .safetensors file")
    path = _iteration_folder(path)
    if (path / DCP_INDEX).is_file():
        from checkpoint_convert.formats.distributed_checkpoint import dcp_arrays  # PyTorch takes seconds to import

        return Checkpoint(path, DCP, dcp_arrays(path))
    if any(path.glob("*.safetensors")):
        return Checkpoint(path, SAFETENSORS, safetensors_arrays(path))
    names = sorted(entry.parent.name for entry in path.glob(f"*/{METADATA_FILE}"))
    if not names:
        raise InputError(
            f"{path}: holds no zarr arrays, no *.safetensors and no {DCP_INDEX} of a PyTorch distributed checkpoint"
        )
    return _open_zarr(path, names)


def _iteration_folder(path: Path) -> Path:
    """Return ``path``, or the folder below that its tracker file names."""
    tracker = path / TRACKER
    if not tracker.is_file():
        return path
    text = read_regular(tracker, 1 << 10).decode(errors="replace").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InputError(f"{tracker}: {text[:40]!r}, expected an iteration; give the folder iter_XXXXXXX itself")
    return path / f"iter_{int(text):07d}"


def _open_zarr(path: Path, names: Sequence[str]) -> Checkpoint:
    form = MEGATRON if (path / "metadata.json").is_file() else ZARR
    form = PAXML if any(name.startswith("mdl_vars.params.lm.") for name in names) else form
    arrays, unread = {}, {}
    for name in names:
        try:
            arrays[name] = zarr_array(path / name)
        except InputError as error:
            if form == ZARR or _is_known(name):
                raise
            unread[name] = str(error)
    return Checkpoint(path, form, arrays, unread)


def _is_known(name: str) -> bool:
    """Whether an array is one of the model's, or a counter."""
    megatron = any(name.endswith(f"{WEIGHTS}{array.megatron}") for array in ARRAYS)
    return megatron or any(name.endswith(f"params.lm.{array.paxml}") for array in ARRAYS) or is_counter(name)


def has_master_weights(checkpoint: Checkpoint) -> bool:
    return any(name.startswith(MASTER_WEIGHTS) for name in checkpoint.arrays)


def checkpoint_adam_step(checkpoint: Checkpoint) -> int | None:
    """Return Adam's step, None where the checkpoint's files do not tell it.

    Raises InputError where they are damaged.
    """
    if checkpoint.format == PAXML:
        return paxml_adam_step(checkpoint.path, checkpoint.arrays)
    if checkpoint.format == MEGATRON:
        return adam_step(checkpoint.path)
    if checkpoint.format == DCP:
        of_run = run_steps(checkpoint.path)[1]
        if of_run is not None:
            return of_run
        with suppress(InputError):  # Megatron's own common.pt holds its command line too, as classes not built here
            return adam_step(checkpoint.path)
    return None
