"""A checkpoint to read one tensor at a time, by the names of a run's own checkpoints (train_state.py).

    model/encoder.layers.7.mlp.…      FP32 weight: the master copy of a BF16 checkpoint
    exp_avg/…  exp_avg_sq/…           Adam's moments

Three formats: the Megatron zarr layout, PyTorch's distributed checkpoint (DCP) that a run saves, and Megatron-Core's
``torch_dist``.
"""

from functools import lru_cache
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from checkpoint_convert.conversion.block_sources import require_chunks
from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, EXP_AVG_SQ, Array
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.common_files import PARAM_GROUP
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint, array_of
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.torch_files import torch_dist
from checkpoint_convert.formats.torch_files.dcp_arrays import METADATA, dcp_arrays
from checkpoint_convert.formats.torch_files.torch_dist import is_torch_dist, open_torch_dist
from checkpoint_convert.formats.zarr_arrays import open_array
from checkpoint_convert.model_sizes.parameters import Shapes, shapes_of_layers
from stage.errors import InputError
from stage.limits.bounded_reading import DAMAGED, read_small_json
from stage.manifest import require_intact

MODEL = "model"
MOMENTS = ("exp_avg", "exp_avg_sq")
TORCH_DIST_MOMENTS = {"exp_avg": torch_dist.EXP_AVG, "exp_avg_sq": torch_dist.EXP_AVG_SQ}
BY_NAME = {array.megatron: array for array in ARRAYS}
BENCHMARK_STEP: int = PARAM_GROUP["step"]


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

    def iteration(self) -> int:
        """Steps since step 0, in the batch size of whoever made the last ones; the benchmark's where nothing tells."""
        ...


def open_tensor_source(folder: Path, *, check: bool = True) -> TensorSource:
    """Open a checkpoint; ``check`` compares it with its manifest.

    Raises InputError when ``folder`` is not there, is none of the formats, or not as its manifest says.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder{_told_beside(folder)}")
    if is_torch_dist(folder):
        return TorchDistSource(folder, check=check)
    if (folder / "metadata.json").is_file():
        return ZarrSource(folder, check=check)
    if (folder / METADATA).is_file():
        return DcpSource(folder, check=check)
    raise InputError(
        f"{folder}: neither a Megatron zarr checkpoint (no metadata.json in it) nor a run's own (no {METADATA}); "
        "of a run, give RUN_DIR/checkpoints/step_XXXXXXXX"
    )


def _told_beside(missing: Path) -> str:
    """A run removes old checkpoints: which ones are there."""
    there = sorted(path.parent.name for path in missing.parent.glob(f"*/{METADATA}"))
    return f"; beside it lie {', '.join(there[-3:])}" if there else ""


@lru_cache(maxsize=1)
def opened_source(folder: Path) -> TensorSource:
    """The same, opened once in a worker's process; whoever started it has compared the source with its manifest, and
    has forgotten (``cache_clear``) what it had opened itself."""
    return open_tensor_source(folder, check=False)


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
            found.update(shapes_of_layers(array, shape))
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

    def iteration(self) -> int:
        step = self._checkpoint.adam_step()
        return BENCHMARK_STEP if step is None else step


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

    def iteration(self) -> int:
        """See :class:`TensorSource`. Raises InputError for a ``progress.json`` that is damaged."""
        path = self.folder / "progress.json"
        if not path.is_file():
            return BENCHMARK_STEP
        try:
            fields = read_small_json(path)
            return int(fields["start_samples"]) // int(fields["global_batch_size"]) + int(fields["steps"])
        except DAMAGED as error:
            raise InputError(f"{path}: not a run's progress ({error!r})") from error


class TorchDistSource:
    """Megatron-Core's format."""

    def __init__(self, folder: Path, *, check: bool = True) -> None:
        self.folder = folder
        if check:
            require_intact(folder)
        self._checkpoint = open_torch_dist(folder)
        self._opened: dict[str, StoredArray] = {}

    def shapes(self, group: str) -> Shapes:
        return {
            name: shape
            for array in ARRAYS
            for name, shape in shapes_of_layers(array, self._array(group, array).shape).items()
        }

    def _array(self, group: str, array: Array) -> StoredArray:
        key = f"{group}/{array.megatron}"
        if key not in self._opened:
            prefix = self._checkpoint.masters() if group == MODEL else TORCH_DIST_MOMENTS[group]
            self._opened[key] = self._checkpoint.fp32_array(prefix, array)
        return self._opened[key]

    def read(self, key: str, shape: tuple[int, ...]) -> Tensor:
        group, name = key.split("/", 1)
        array_name, layer = array_of(name)
        stored = self._array(group, BY_NAME[array_name])
        if layer is None:
            return torch.from_numpy(stored.read(whole_box(shape)))
        return torch.from_numpy(stored.read((slice(layer, layer + 1), *whole_box(shape)))[0])

    def iteration(self) -> int:
        step = self._checkpoint.step()
        return BENCHMARK_STEP if step is None else step
