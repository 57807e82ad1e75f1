"""A checkpoint seen as Megatron's arrays of FP32 weights and moments, all layers of a parameter in one.

Two formats: the Megatron zarr layout, and PyTorch's distributed checkpoint (DCP) that a run saves, with a tensor for
each layer under ``model/``, ``exp_avg/`` and ``exp_avg_sq/`` (train_state.py).
"""

import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, EXP_AVG_SQ, WEIGHTS, Array, array_of
from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.byte_ranges import MEND
from checkpoint_convert.formats.common_files import LARGEST_STEP, adam_step, fp32_weights_prefix
from checkpoint_convert.formats.distributed_checkpoint import METADATA, dcp_arrays
from checkpoint_convert.formats.stored_array import StoredArray, stacked
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, zarr_array
from checkpoint_convert.model_sizes.run_files import run_steps
from checksums.common_file import COMMON
from checksums.common_file import METADATA as METADATA_JSON
from stage.errors import InputError
from stage.outputs.manifest import files_below, require_intact
from stage.sizes import require_between

MODEL = "model"
MOMENTS = ("exp_avg", "exp_avg_sq")


class TensorSource:
    """A checkpoint opened for reading."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError when ``folder`` is not there or is none of the formats."""
        if not folder.is_dir():
            there = sorted(path.parent.name for path in folder.parent.glob(f"*/{METADATA}"))
            beside = f"; beside it lie {', '.join(there[-3:])}" if there else ""  # a run removes old checkpoints
            raise InputError(f"{folder}: no such folder{beside}")
        self.folder, self._is_run = folder, (folder / METADATA).is_file()
        if not self._is_run and not (folder / METADATA_JSON).is_file():
            raise InputError(
                f"{folder}: neither a Megatron zarr checkpoint (no metadata.json in it) nor a run's own (no "
                f"{METADATA}); of a run, give RUN_DIR/checkpoints/step_XXXXXXXX"
            )
        self._tensors = dcp_arrays(folder) if self._is_run else {}
        self._opened: dict[str, dict[Array, StoredArray]] = {}

    def arrays(self, group: str) -> Mapping[Array, StoredArray]:
        """Return the arrays of ``group``, one of model, exp_avg, exp_avg_sq. Raises InputError for one that is missing,
        is not FP32, or is no parameter's."""
        if group not in self._opened:
            found = self._of_run(group) if self._is_run else self._of_zarr(group)
            for array, stored in found.items():
                if stored.dtype.name != "float32":
                    raise InputError(
                        f"{self.folder}: {group} of {array.megatron}: {stored.dtype.name}, expected float32"
                    )
            self._opened[group] = found
        return self._opened[group]

    def require_chunks(self, group: str) -> None:
        """Raise InputError where chunks of the group's arrays have no file."""
        for array, stored in self.arrays(group).items():
            if lost := stored.on_disk()[1]:
                raise InputError(f"{self.folder}: {lost:,} chunks of {group} of {array.megatron} have no file; {MEND}")

    def read(self, group: str, array: Array, box: Box) -> Tensor:
        """Read a box of an array. Raises InputError where it is damaged."""
        return torch.from_numpy(self.arrays(group)[array].read(box))

    def files(self, *groups: str) -> list[str]:
        """Return the names of the files that an export of ``groups`` depends on."""
        if self._is_run:
            return [name for name, _ in files_below(self.folder)]
        folders = [prefix + array.megatron for prefix in map(self._prefix, groups) for array in ARRAYS]
        inner = [f"{folder}/{name}" for folder in folders for name, _ in files_below(self.folder / folder)]
        return [METADATA_JSON, COMMON, *inner]

    def steps(self) -> tuple[int | None, int | None]:
        """Return the steps since step 0, in the batch size of whoever made the last ones, and Adam's step; None where
        nothing tells them."""
        if self._is_run:
            return run_steps(self.folder)
        step = adam_step(self.folder)
        return step, step

    def tell_left_out(self) -> None:
        """Print the arrays that are in no export, as they belong to no parameter of the model."""
        if self._is_run:
            names = [key for key in self._tensors if key.split("/")[0] not in (MODEL, *MOMENTS)]
        else:
            prefixes = (WEIGHTS, fp32_weights_prefix(self.folder), EXP_AVG, EXP_AVG_SQ)
            known = {prefix + array.megatron for prefix in prefixes for array in ARRAYS}
            names = [path.parent.name for path in self.folder.glob(f"*/{METADATA_FILE}")]
            names = [name for name in names if name not in known]
        if names:
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            print(f"{self.folder}: left out, for the model has no such array: {min(names)}{more}", file=sys.stderr)

    def _of_zarr(self, group: str) -> dict[Array, StoredArray]:
        return {array: zarr_array(self.folder / (self._prefix(group) + array.megatron)) for array in ARRAYS}

    def _prefix(self, group: str) -> str:
        return (
            fp32_weights_prefix(self.folder)
            if group == MODEL
            else {"exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}[group]
        )

    def _of_run(self, group: str) -> dict[Array, StoredArray]:
        found: dict[str, dict[int | None, StoredArray]] = {array.megatron: {} for array in ARRAYS}
        for key, stored in self._tensors.items():
            if key.startswith(f"{group}/"):
                name, layer = array_of(key.removeprefix(f"{group}/"))
                if name not in found:
                    raise InputError(f"{self.folder}: {key} is no parameter of the model")
                found[name][layer] = stored
        layers = max(map(len, found.values()))
        arrays = {}
        for array in ARRAYS:
            parts = found[array.megatron]
            numbers = range(layers) if array.stacked else [None]
            if missing := [number for number in numbers if number not in parts]:
                raise InputError(f"{self.folder}: {group}/{array.parameter(missing[0] or 0)} is missing")
            if len({(part.shape, part.dtype) for part in parts.values()}) > 1:
                raise InputError(f"{self.folder}: the layers of {group}/{array.megatron} have several shapes or dtypes")
            arrays[array] = stacked([parts[number] for number in numbers]) if array.stacked else parts[None]
        return arrays


@lru_cache(maxsize=1)
def opened_source(folder: Path) -> TensorSource:
    """Open a source once in a worker's process."""
    return TensorSource(folder)


def whole_source(folder: Path) -> TensorSource:
    """Open a source anew, for this process and its workers. Raises InputError where it is not as its manifest says."""
    opened_source.cache_clear()
    source = opened_source(folder)
    require_intact(folder)
    return source


def told_steps(source: TensorSource, given: int | None) -> tuple[int, int]:
    """Return the iteration and Adam's step of a checkpoint; ``given`` (``--step``) where its files do not tell them.

    Raises InputError where nobody tells them, or the files tell something else than ``given``: Adam's step is never
    assumed.
    """
    if given is not None:
        require_between(given, 0, LARGEST_STEP, "--step")
    iteration, step = source.steps()
    if given is not None and step not in (None, given):
        raise InputError(f"--step {given}: {source.folder} tells that Adam's step is {step}; leave --step out")
    step = given if step is None else step
    if step is None:
        raise InputError(f"{source.folder}: no common.pt and no run's files tell Adam's step; pass --step")
    return (step if iteration is None else iteration), step
