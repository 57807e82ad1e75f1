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

from checkpoint_convert.conversion.block_sources import require_chunks
from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, EXP_AVG_SQ
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.dcp_arrays import METADATA, dcp_arrays
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from checkpoint_convert.formats.zarr_arrays import open_array
from checkpoint_convert.model_sizes.parameters import Shapes, layer_name
from stage.errors import InputError
from stage.manifest import require_intact

MODEL = "model"
MOMENTS = ("exp_avg", "exp_avg_sq")


class TensorSource(Protocol):
    """A checkpoint opened for reading."""

    folder: Path

    def shapes(self, group: str) -> Shapes:
        """Shape of each parameter in ``group``, one of model, exp_avg, exp_avg_sq.

        Raises InputError for an array that is missing or not FP32.
        """
        ...

    def read(self, key: str, shape: tuple[int, ...]) -> Tensor:
        """The FP32 tensor ``GROUP/PARAMETER``, whose shape is ``shape``. Raises InputError when it is damaged."""
        ...


def open_tensor_source(folder: Path) -> TensorSource:
    """Raises InputError when ``folder`` is neither of the two formats, or not as its manifest says."""
    if (folder / "metadata.json").is_file():
        return ZarrSource(folder)
    if (folder / METADATA).is_file():
        return DcpSource(folder)
    raise InputError(
        f"{folder}: neither a Megatron zarr checkpoint (no metadata.json in it) nor a run's own (no {METADATA}); "
        "of a run, give RUN_DIR/checkpoints/step_XXXXXXXX"
    )


@lru_cache(maxsize=1)
def opened_source(folder: Path) -> TensorSource:
    """The same, opened once in a worker's process; whoever started it has compared the source with its manifest, and
    has forgotten (``cache_clear``) what it had opened itself."""
    return ZarrSource(folder, check=False) if (folder / "metadata.json").is_file() else DcpSource(folder, check=False)


class ZarrSource:
    """The Megatron zarr layout: all layers of a parameter lie in one array."""

    def __init__(self, folder: Path, *, check: bool = True) -> None:
        self.folder = folder
        self._checkpoint = MegatronCheckpoint(folder)
        self._files_are_counted = check and require_intact(folder) is not None
        self._prefixes = {MODEL: self._checkpoint.weights, "exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}

    def shapes(self, group: str) -> Shapes:
        """See :class:`TensorSource`. Without a manifest, raises InputError for a missing chunk too."""
        found: dict[str, tuple[int, ...]] = {}
        for array in ARRAYS:
            path = self.folder / (self._prefixes[group] + array.megatron)
            opened = open_array(path)
            shape = tuple(opened.shape)
            if opened.dtype.name != "float32":
                raise InputError(f"{path}: {opened.dtype.name}, expected float32 weights or an FP32 master copy")
            if not self._files_are_counted:
                require_chunks(path, shape, mend="copy the checkpoint again, with its manifest")
            if array.stacked:
                found.update({layer_name(array.megatron, layer): shape[1:] for layer in range(shape[0])})
            else:
                found[array.megatron] = shape
        return found

    def read(self, key: str, shape: tuple[int, ...]) -> Tensor:
        group, name = key.split("/", 1)
        target = torch.empty(shape)
        if group == MODEL:
            self._checkpoint.load_weights({name: target})
        else:
            exp_avg, exp_avg_sq = ({name: target} if moment == group else {} for moment in MOMENTS)
            self._checkpoint.load_moments(exp_avg, exp_avg_sq)
        return target


class DcpSource:
    """A run's own checkpoint, whatever number of processes wrote it, read by this process alone."""

    def __init__(self, folder: Path, *, check: bool = True) -> None:
        self.folder = folder
        if check:
            require_intact(folder)
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
