"""A checkpoint to read one tensor at a time, by the names of a run's own checkpoints (train_state.py).

    model/encoder.layers.7.mlp.…      FP32 weight: the master copy of a BF16 checkpoint
    exp_avg/…  exp_avg_sq/…           Adam's moments

Two formats: the Megatron zarr layout, and PyTorch's distributed checkpoint (DCP) that a run saves.
"""

from functools import lru_cache
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, EXP_AVG_SQ, WEIGHTS
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.chunk_files import MEND
from checkpoint_convert.formats.common_files import LARGEST_STEP
from checkpoint_convert.formats.distributed_checkpoint import METADATA, dcp_arrays
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from checkpoint_convert.formats.stored_array import zarr_array
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE
from checkpoint_convert.model_sizes.parameters import Shapes, shapes_of_layers
from checkpoint_convert.model_sizes.run_files import run_adam_step, run_iteration
from stage.errors import InputError
from stage.outputs.manifest import require_intact
from stage.sizes import require_between

MODEL = "model"
MOMENTS = ("exp_avg", "exp_avg_sq")


class TensorSource(Protocol):
    """A checkpoint opened for reading."""

    folder: Path

    def shapes(self, group: str) -> Shapes:
        """Return the shape of each parameter in ``group``, one of model, exp_avg, exp_avg_sq.

        Raises InputError for an array that is missing, lacks chunks, or is not FP32.
        """
        ...

    def read(self, key: str, shape: tuple[int, ...]) -> Tensor:
        """Read the FP32 tensor ``GROUP/PARAMETER``, whose shape is ``shape``. Raises InputError when it is damaged."""
        ...

    def iteration(self) -> int | None:
        """Return the steps since step 0, in the batch size of whoever made the last ones; None where nothing tells."""
        ...

    def adam_step(self) -> int | None:
        """Return Adam's step; None where nothing tells it."""
        ...

    def left_out(self) -> list[str]:
        """Return the names of arrays that belong to no parameter of the model."""
        ...


def open_tensor_source(folder: Path, *, check: bool = True) -> TensorSource:
    """Open a checkpoint; ``check`` compares it with its manifest.

    Raises InputError when ``folder`` is not there, is none of the formats, or not as its manifest says.
    """
    if not folder.is_dir():
        there = sorted(path.parent.name for path in folder.parent.glob(f"*/{METADATA}"))
        beside = f"; beside it lie {', '.join(there[-3:])}" if there else ""  # a run removes old checkpoints
        raise InputError(f"{folder}: no such folder{beside}")
    is_dcp = (folder / METADATA).is_file()
    if not is_dcp and not (folder / "metadata.json").is_file():
        raise InputError(
            f"{folder}: neither a Megatron zarr checkpoint (no metadata.json in it) nor a run's own (no {METADATA}); "
            "of a run, give RUN_DIR/checkpoints/step_XXXXXXXX"
        )
    if check:
        require_intact(folder)
    return DcpSource(folder) if is_dcp else ZarrSource(folder)


@lru_cache(maxsize=1)
def opened_source(folder: Path) -> TensorSource:
    """Open a source once in a worker's process. Whoever started the worker has compared the source with its manifest,
    and has forgotten (``cache_clear``) its own."""
    return open_tensor_source(folder, check=False)


class ZarrSource:
    """The Megatron zarr layout: all layers of a parameter lie in one array."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checkpoint = MegatronCheckpoint(folder)
        self._prefixes = {MODEL: self._checkpoint.weights, "exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}

    def shapes(self, group: str) -> Shapes:
        found: dict[str, tuple[int, ...]] = {}
        for array in ARRAYS:
            path = self.folder / (self._prefixes[group] + array.megatron)
            stored = zarr_array(path)
            if stored.dtype.name != "float32":
                raise InputError(f"{path}: {stored.dtype.name}, expected float32 weights or an FP32 master copy")
            if lost := stored.on_disk()[1]:
                raise InputError(f"{path}: {lost:,} chunks have no file; {MEND}")
            found.update(shapes_of_layers(array, stored.shape))
        return found

    def read(self, key: str, shape: tuple[int, ...]) -> Tensor:
        group, name = key.split("/", 1)
        values = self._checkpoint.read(self._prefixes[group], name, shape, whole_box(shape))
        return torch.from_numpy(values)

    def iteration(self) -> int | None:
        return self.adam_step()

    def adam_step(self) -> int | None:
        return self._checkpoint.adam_step()

    def left_out(self) -> list[str]:
        known = {prefix + array.megatron for prefix in (WEIGHTS, *self._prefixes.values()) for array in ARRAYS}
        return sorted(
            path.parent.name for path in self.folder.glob(f"*/{METADATA_FILE}") if path.parent.name not in known
        )


class DcpSource:
    """A run's own checkpoint, whatever number of processes wrote it, read by this process alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arrays = dcp_arrays(folder)

    def shapes(self, group: str) -> Shapes:
        found: dict[str, tuple[int, ...]] = {}
        for key, array in self._arrays.items():
            if not key.startswith(f"{group}/"):
                continue
            if array.dtype.name != "float32":
                raise InputError(f"{self.folder}: {key} is {array.dtype.name}, expected float32")
            found[key.removeprefix(f"{group}/")] = array.shape
        return found

    def read(self, key: str, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self._arrays[key].read(whole_box(shape)))

    def iteration(self) -> int | None:
        return run_iteration(self.folder)

    def adam_step(self) -> int | None:
        return run_adam_step(self.folder)

    def left_out(self) -> list[str]:
        return sorted(key for key in self._arrays if key.split("/")[0] not in (MODEL, *MOMENTS))


def told_steps(source: TensorSource, given: int | None) -> tuple[int, int]:
    """Return the iteration and Adam's step of a checkpoint; ``given`` (``--step``) where its files do not tell them.

    Raises InputError where nobody tells them, or the files tell something else than ``given``: Adam's step is never
    assumed.
    """
    if given is not None:
        require_between(given, 0, LARGEST_STEP, "--step")
    iteration, step = source.iteration(), source.adam_step()
    if given is not None and step not in (None, given):
        raise InputError(f"--step {given}: {source.folder} tells that Adam's step is {step}; leave --step out")
    step = given if step is None else step
    if step is None:
        raise InputError(f"{source.folder}: no common.pt and no run's files tell Adam's step; pass --step")
    return (step if iteration is None else iteration), step
