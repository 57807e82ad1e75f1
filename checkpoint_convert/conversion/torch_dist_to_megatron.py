"""Megatron-Core's ``torch_dist`` to the Megatron zarr layout, from which a run starts.

The FP32 weights are taken, which beside BF16 ones are the optimizer's copy. Nothing is reordered: both hold the same
arrays under other names (``formats/torch_files/torch_dist.py``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoint_convert.conversion.block_choice import choose_blocks
from checkpoint_convert.conversion.blocks import Side
from checkpoint_convert.conversion.paxml_to_megatron import NUMPY_DTYPES
from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from checkpoint_convert.conversion.run_conversion import Converted, run_conversion
from checkpoint_convert.conversion.streaming import Job, Target
from checkpoint_convert.formats.array_table import (
    ARRAYS,
    EXP_AVG,
    EXP_AVG_SQ,
    Array,
    ArrayGroup,
    array_dtype,
    chunk_shape,
    groups,
)
from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.common_files import common_files
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.torch_files import torch_dist
from checkpoint_convert.formats.torch_files.torch_dist import NAMES, TorchDistCheckpoint, open_torch_dist
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, metadata_text
from checkpoint_convert.model_sizes.axis_sizes import parameter_axis_sizes
from checkpoint_convert.model_sizes.parameters import shapes_of_layers
from stage.limits.sizes import require_workers

MOMENTS = {EXP_AVG: torch_dist.EXP_AVG, EXP_AVG_SQ: torch_dist.EXP_AVG_SQ}


@dataclass(frozen=True)
class ArraySource:
    """An FP32 array of any format."""

    path: Path
    """For messages."""
    stored: StoredArray

    @property
    def chunks(self) -> tuple[int, ...]:
        return self.stored.chunks

    def read(self, box: Box, values: npt.NDArray[np.float32]) -> None:
        """Raises InputError where a shard cannot be read."""
        values[...] = self.stored.read(box)


@dataclass(frozen=True)
class TorchDistToMegatronConversion:
    """The conversion of one checkpoint."""

    checkpoint: TorchDistCheckpoint
    dtype: str
    """fp32 or bf16."""

    stage = "torch-dist-to-megatron"

    @property
    def options(self) -> dict[str, Any]:
        return {"dtype": self.dtype}

    def arrays(self) -> list[str]:
        """All files lie in the folder itself."""
        return ["."]

    def jobs(self, files: SourceFiles, workers: int, memory_limit: int) -> list[Job]:
        """One per input array. Raises InputError for a missing array, a wrong shape or dtype."""
        self._require_a_model()
        return [self._job(group, array, workers, memory_limit) for group in groups(self.dtype) for array in ARRAYS]

    def _prefix(self, group: ArrayGroup) -> str:
        return MOMENTS.get(group.megatron[0]) or self.checkpoint.masters()

    def _require_a_model(self) -> None:
        """That the shapes of all arrays are those of one model."""
        for group in groups(self.dtype):
            shapes: dict[str, tuple[int, ...]] = {}
            for array in ARRAYS:
                shapes.update(shapes_of_layers(array, self._array(group, array).shape))
            parameter_axis_sizes(self.checkpoint.folder, shapes)

    def _array(self, group: ArrayGroup, array: Array) -> StoredArray:
        return self.checkpoint.fp32_array(self._prefix(group), array)

    def _job(self, group: ArrayGroup, array: Array, workers: int, memory_limit: int) -> Job:
        stored = self._array(group, array)
        axes = [f"axis {number}" for number in range(len(stored.shape))]
        sizes: Mapping[str, int] = dict(zip(axes, stored.shape, strict=True))
        as_they_are = tuple((axis,) for axis in axes)
        source, target = Side(as_they_are, stored.chunks), Side(as_they_are, chunk_shape(stored.shape))
        targets = tuple(
            Target(name + array.megatron, NUMPY_DTYPES[array_dtype(name, self.dtype)]) for name in group.megatron
        )
        opened = ArraySource(self.checkpoint.folder / (self._prefix(group) + NAMES[array.megatron]), stored)
        written = sum(target.dtype.itemsize for target in targets)
        chosen = choose_blocks(memory_limit, workers, sizes, source, target, written)
        return Job(opened, chosen, targets, group.megatron == (EXP_AVG_SQ,))

    def small_files(self) -> dict[str, bytes]:
        files = common_files(self.dtype, self.checkpoint.step())
        for group in groups(self.dtype):
            for array in ARRAYS:
                shape = self._array(group, array).shape
                for prefix in group.megatron:
                    text = metadata_text(shape, array_dtype(prefix, self.dtype), chunk_shape(shape))
                    files[f"{prefix}{array.megatron}/{METADATA_FILE}"] = text
        return files


def torch_dist_to_megatron(
    source: Path, output: Path, *, dtype: str, workers: int, memory_limit: int, force: bool = False
) -> Converted | None:
    """Convert ``source`` to ``output`` (``dtype`` fp32 or bf16); None when it was already made from this source.

    Raises InputError for a missing array or shard, a wrong shape or dtype, a value that training cannot leave, or
    different work under the output's name.
    """
    require_workers(workers)
    checkpoint = open_torch_dist(source)
    conversion = TorchDistToMegatronConversion(checkpoint, dtype)
    return run_conversion(
        conversion, checkpoint.folder, output, workers=workers, memory_limit=memory_limit, force=force
    )
