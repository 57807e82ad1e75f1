"""Read a converted checkpoint straight into (sharded) tensors: each process reads only the slices it owns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from checkpoint_convert.arrays import EXP_AVG, EXP_AVG_SQ, MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.common import adam_step
from checkpoint_convert.zarr import open_array
from stage.errors import InputError

LAYERS = "encoder.layers."
READS_IN_FLIGHT = 16


class MegatronCheckpoint:
    """A checkpoint in the Megatron zarr layout, FP32 or BF16 with master weights.

    Raises InputError when the folder is none, and later for a missing array or a shape that is not the model's.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "metadata.json").is_file():
            raise InputError(f"{folder}: not a Megatron zarr checkpoint (no metadata.json in it)")
        self.folder = folder
        self.weights = MASTER_WEIGHTS if any(folder.glob(f"{MASTER_WEIGHTS}*")) else WEIGHTS
        """The FP32 weights: the master copy of a BF16 checkpoint."""

    def adam_step(self) -> int | None:
        """Adam's step counter, None where the checkpoint has no common.pt."""
        return adam_step(self.folder)

    def load_weights(self, targets: Mapping[str, Tensor]) -> None:
        """Fill tensors by parameter name (``encoder.layers.7.mlp.…``). DTensors get this process's part."""
        self._load(self.weights, targets)

    def load_moments(self, exp_avg: Mapping[str, Tensor], exp_avg_sq: Mapping[str, Tensor]) -> None:
        """Fill Adam's moments by parameter name."""
        self._load(EXP_AVG, exp_avg)
        self._load(EXP_AVG_SQ, exp_avg_sq)

    def _load(self, prefix: str, targets: Mapping[str, Tensor]) -> None:
        arrays: dict[str, Any] = {}
        waiting: list[tuple[Tensor, Any]] = []
        for name, target in targets.items():
            array_name, layer = _array_of(name)
            if array_name not in arrays:
                arrays[array_name] = open_array(self.folder / (prefix + array_name))
            source = self._parameter(arrays[array_name], array_name, layer, tuple(target.shape))
            local, slices = _owned(target)
            waiting.append((local, source[slices].read()))
            if len(waiting) >= READS_IN_FLIGHT:
                _copy(*waiting.pop(0))
        for local, read in waiting:
            _copy(local, read)

    def _parameter(self, array: Any, array_name: str, layer: int | None, shape: tuple[int, ...]) -> Any:
        """One parameter's part of the array, after comparing shapes. Nothing is ever truncated or padded."""
        found = tuple(array.shape) if layer is None else tuple(array.shape[1:])
        if found != shape or (layer is not None and layer >= array.shape[0]):
            expected = list(shape) if layer is None else [f"more than {layer}", *shape]
            raise InputError(
                f"{self.folder / array_name}: shape {list(array.shape)}, but the model expects {expected}; "
                "the checkpoint belongs to another model"
            )
        return array if layer is None else array[layer]


def _array_of(name: str) -> tuple[str, int | None]:
    """'encoder.layers.7.mlp.x' -> ('encoder.layers.mlp.x', 7): all layers lie in one array."""
    if not name.startswith(LAYERS):
        return name, None
    layer, rest = name.removeprefix(LAYERS).split(".", 1)
    return LAYERS + rest, int(layer)


def _owned(target: Tensor) -> tuple[Tensor, tuple[slice, ...]]:
    """This process's part of ``target`` and its place in the whole."""
    if not isinstance(target, DTensor):
        return target, tuple(slice(0, size) for size in target.shape)
    shape, offset = compute_local_shape_and_global_offset(target.shape, target.device_mesh, target.placements)
    slices = tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))
    return target.to_local(), slices


def _copy(local: Tensor, read: Any) -> None:
    try:
        values = np.ascontiguousarray(read.result(), dtype=np.float32)
    except ValueError as error:  # what TensorStore raises for a damaged chunk
        raise InputError(f"a chunk cannot be read ({str(error).splitlines()[0]}); verify the checkpoint") from error
    local.detach().copy_(torch.from_numpy(values))
