"""Read a converted checkpoint straight into (sharded) tensors: each process reads only the slices it owns."""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from checkpoint_convert.formats.array_table import EXP_AVG, EXP_AVG_SQ, LAYERS, array_of
from checkpoint_convert.formats.boxes import Box, box_at, whole_box
from checkpoint_convert.formats.step_files import adam_step, fp32_weights_prefix
from checkpoint_convert.formats.stored_array import Values
from checkpoint_convert.formats.zarr_arrays import ZarrArray, zarr_array
from foundation.errors import InputError

READS_IN_FLIGHT = 16


class MegatronCheckpoint:
    """A checkpoint in the Megatron zarr layout, FP32 or BF16 with master weights.

    Raises InputError if the folder holds none, and later for a missing array or a shape that is not the model's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arrays: dict[str, ZarrArray] = {}
        self._opening = Lock()
        self.weights = fp32_weights_prefix(folder)
        """Prefix of the arrays of the FP32 weights."""

    def adam_step(self) -> int | None:
        """Return Adam's step, or None if the checkpoint has no common.pt."""
        return adam_step(self.folder)

    def num_layers(self) -> int:
        """Return the number of layers of the model that the checkpoint belongs to."""
        return self._array(f"{self.weights}encoder{LAYERS}input_layernorm.weight").shape[0]

    def load_weights(self, targets: Mapping[str, Tensor]) -> None:
        """Fill tensors by parameter name (``encoder.layers.7.mlp.…``). A DTensor gets this process's part."""
        fill_own_parts(targets, partial(self.read, self.weights))

    def load_moments(self, exp_avg: Mapping[str, Tensor], exp_avg_sq: Mapping[str, Tensor]) -> None:
        """Fill Adam's moments by parameter name."""
        fill_own_parts(exp_avg, partial(self.read, EXP_AVG))
        fill_own_parts(exp_avg_sq, partial(self.read, EXP_AVG_SQ))

    def read(self, prefix: str, name: str, shape: tuple[int, ...], box: Box) -> Values:
        """Read the values of ``box`` in the parameter ``name`` of the model's ``shape``, and little more.

        Raises InputError if the stored shape differs: nothing is ever truncated or padded.
        """
        array_name, layer = array_of(name)
        array = self._array(prefix + array_name)
        stored_shape = array.shape if layer is None else array.shape[1:]
        if stored_shape != shape or (layer is not None and layer >= array.shape[0]):
            expected = list(shape) if layer is None else [f"more than {layer}", *shape]
            raise InputError(
                f"{self.folder / array_name}: shape {list(array.shape)}, but the model expects {expected}; "
                "the checkpoint belongs to another model"
            )
        if layer is None:
            return array.read(box)
        values: Values = array.read((slice(layer, layer + 1), *box))[0]
        return values

    def _array(self, name: str) -> ZarrArray:
        with self._opening:
            if name not in self._arrays:
                self._arrays[name] = zarr_array(self.folder / name)
            return self._arrays[name]


def fill_own_parts(targets: Mapping[str, Tensor], read: Callable[[str, tuple[int, ...], Box], Values]) -> None:
    """Fill tensors with the values of ``read(name, whole shape, box)``; a DTensor gets this process's part."""
    waiting: deque[tuple[Tensor, Future[Values]]] = deque()
    with ThreadPoolExecutor(READS_IN_FLIGHT) as pool:
        for name, target in targets.items():
            local, box = own_part(target)
            waiting.append((local, pool.submit(read, name, tuple(target.shape), box)))
            if len(waiting) > READS_IN_FLIGHT:
                _copy(*waiting.popleft())
        while waiting:
            _copy(*waiting.popleft())


def own_part(target: Tensor) -> tuple[Tensor, Box]:
    """Return this process's part of ``target`` and its place in the whole."""
    if not isinstance(target, DTensor):
        return target, whole_box(target.shape)
    shape, offset = compute_local_shape_and_global_offset(target.shape, target.device_mesh, target.placements)
    return target.to_local(), box_at(offset, shape)


def _copy(local: Tensor, read: Future[Values]) -> None:
    local.detach().copy_(torch.from_numpy(np.ascontiguousarray(read.result(), dtype=np.float32)))
