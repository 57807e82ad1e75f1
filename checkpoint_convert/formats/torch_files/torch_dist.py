"""Megatron-Core's checkpoint format ``torch_dist``: PyTorch's distributed checkpoint under Megatron-Core's names.

    ROOT/latest_checkpointed_iteration.txt      the iteration
    ROOT/iter_0004000/metadata.json             {"sharded_backend": "torch_dist", …}
    ROOT/iter_0004000/.metadata, *.distcp       the tensors; all layers of a parameter are one array [L, …]
    ROOT/iter_0004000/common.pt                 iteration, Adam's step, Megatron's command line

Weights have the names below, what Adam keeps has them behind ``optimizer.state.exp_avg.`` and the like. The FP32 copy
of BF16 weights is ``optimizer.state.fp32_param.`` of the plain optimizer and ``optimizer.state.param.`` of the
distributed one (``fully_reshardable``). As of Megatron-Core 0.16 (core/models/gpt, core/optimizer,
training/checkpointing.py); the attention's rows lie [head][q, k, v][dimension] there as they do here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_convert.formats.array_table import ARRAYS, LAYERS, Array
from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.byte_ranges import Values
from checkpoint_convert.formats.common_files import LARGEST_COMMON
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.torch_files.dcp_arrays import dcp_arrays, stored_object
from checkpoint_convert.formats.torch_files.inert_pickle import read_plain_values
from stage.errors import InputError
from stage.limits.bounded_reading import DAMAGED, read_bounded, read_small_json

BACKEND = "torch_dist"
CONFIG, COMMON, TRACKER = "metadata.json", "common.pt", "latest_checkpointed_iteration.txt"
COMMON_STATE = "common_state/shard_0_1"
"""What newer versions write in the place of common.pt."""
EXP_AVG, EXP_AVG_SQ = "optimizer.state.exp_avg.", "optimizer.state.exp_avg_sq."
MASTERS = ("optimizer.state.fp32_param.", "optimizer.state.param.")
DECODER_LAYERS = "decoder.layers."
_PARTS = {
    "input_layernorm.": "self_attention.linear_qkv.layer_norm_",
    "post_attention_layernorm.": "mlp.linear_fc1.layer_norm_",
    "self_attention.query_key_value.": "self_attention.linear_qkv.",
    "self_attention.dense.": "self_attention.linear_proj.",
    "mlp.dense_h_to_4h.": "mlp.linear_fc1.",
    "mlp.dense_4h_to_h.": "mlp.linear_fc2.",
}


def core_name(array: Array) -> str:
    """Megatron-Core's name of an array (``array_table.py``)."""
    if not array.stacked:
        return array.megatron.replace("encoder.", "decoder.")
    part, kind = array.megatron.removeprefix(LAYERS).rsplit(".", 1)
    return DECODER_LAYERS + _PARTS[part + "."] + kind


LARGEST_TRACKER = 1 << 10
"""Bytes; it holds a number."""
NAMES = {array.megatron: core_name(array) for array in ARRAYS}


def is_torch_dist(folder: Path) -> bool:
    """Whether ``folder`` is such a checkpoint, or holds one of them and says which."""
    return (folder / TRACKER).is_file() or sharded_backend(folder) == BACKEND


def sharded_backend(folder: Path) -> str | None:
    """Of Megatron's metadata.json; None where there is none, or it does not say."""
    try:
        return str(read_small_json(folder / CONFIG)["sharded_backend"])
    except (OSError, InputError, *DAMAGED):
        return None


def iteration_folder(folder: Path) -> Path:
    """``folder``, or the one of its ``iter_XXXXXXX`` that its tracker file names.

    Raises InputError where there is no such checkpoint.
    """
    tracker = folder / TRACKER
    found = folder
    if tracker.is_file():
        text = read_bounded(tracker, LARGEST_TRACKER).decode(errors="replace").strip()
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise InputError(f"{tracker}: {text[:40]!r}, expected an iteration; give ROOT/iter_XXXXXXX")
        found = folder / f"iter_{int(text):07d}"
    if sharded_backend(found) != BACKEND:
        raise InputError(f"{found}: not a checkpoint of Megatron-Core's {BACKEND} (no metadata.json that says so)")
    return found


@dataclass(frozen=True)
class TorchDistCheckpoint:
    """One such checkpoint, opened for reading."""

    folder: Path
    arrays: Mapping[str, StoredArray]
    """By Megatron-Core's names."""

    def has(self, prefix: str) -> bool:
        """Whether there are arrays whose names begin with ``prefix`` and go on as a weight's."""
        return any(name.startswith(prefix) for name in self.arrays)

    def masters(self) -> str:
        """Prefix of the FP32 weights. Raises InputError where there are only weights of another dtype."""
        prefix = next((prefix for prefix in (*MASTERS, "") if self._has_word_embedding(prefix)), None)
        if prefix is None:
            raise InputError(
                f"{self.folder}: no FP32 weights in it, neither as weights nor as the optimizer's own copy"
            )
        return prefix

    def _has_word_embedding(self, prefix: str) -> bool:
        array = self.arrays.get(prefix + NAMES["embedding.word_embeddings.weight"])
        return array is not None and array.dtype == np.float32

    def array(self, prefix: str, array: Array) -> StoredArray:
        """An array, all layers of a stacked one together, wherever they lie.

        Raises InputError where it, or one of its layers, is missing or they differ in shape or dtype.
        """
        name = prefix + NAMES[array.megatron]
        if name in self.arrays:
            return self.arrays[name]
        layers: list[StoredArray] = []
        while (
            array.stacked and (one := name.replace(DECODER_LAYERS, f"{DECODER_LAYERS}{len(layers)}.", 1)) in self.arrays
        ):
            layers.append(self.arrays[one])
        if not layers:
            raise InputError(f"{self.folder}: {name} is missing")
        if len({(layer.shape, layer.dtype) for layer in layers}) > 1:
            raise InputError(f"{self.folder}: layers of {name} differ in shape or dtype")
        return _stacked(layers)

    def fp32_array(self, prefix: str, array: Array) -> StoredArray:
        """``array``, where it must be FP32. Raises InputError where it is missing or has another dtype."""
        found = self.array(prefix, array)
        if found.dtype != np.float32:
            name = prefix + NAMES[array.megatron]
            raise InputError(f"{self.folder}: {name} is {found.dtype.name}, expected float32")
        return found

    def step(self) -> int | None:
        """Adam's step, or else the iteration; None where nothing tells. Raises InputError for a damaged common.pt."""
        common = self._common()
        found = (_find(common, key) for key in ("step", "common_step", "iteration"))
        return next((number for number in found if number is not None), None)

    def _common(self) -> Any:
        path = self.folder / COMMON
        if path.is_file():
            if path.stat().st_size > LARGEST_COMMON:
                raise InputError(f"{path}: {path.stat().st_size:,} bytes, more than any common.pt has")
            return read_plain_values(path.read_bytes(), path)
        content = stored_object(self.folder, COMMON_STATE, LARGEST_COMMON)
        return None if content is None else read_plain_values(content, self.folder)


def open_torch_dist(folder: Path) -> TorchDistCheckpoint:
    """Raises InputError where ``folder`` is no such checkpoint (:func:`iteration_folder`), or a damaged one."""
    found = iteration_folder(folder)
    return TorchDistCheckpoint(found, dcp_arrays(found))


def _stacked(layers: list[StoredArray]) -> StoredArray:
    """Arrays of one shape as one, along a new first axis."""
    first = layers[0]

    def read(box: Box) -> Values:
        return np.stack([layers[layer].read(box[1:]) for layer in range(box[0].start, box[0].stop)])

    def on_disk() -> tuple[int, int]:
        sizes = [layer.on_disk() for layer in layers]
        return sum(size for size, _ in sizes), sum(missing for _, missing in sizes)

    return StoredArray((len(layers), *first.shape), first.dtype, (1, *first.chunks), on_disk, read, first.in_part)


def _find(value: Any, key: str, depth: int = 8) -> int | None:
    """The first whole number under ``key`` in dictionaries and lists within one another; the optimizer's are looked at
    before all others."""
    if depth == 0:
        return None
    if isinstance(value, dict):
        if type(value.get(key)) is int:
            return int(value[key])
        inner = sorted(value.items(), key=lambda item: item[0] != "optimizer")
        return next((found for _, one in inner if (found := _find(one, key, depth - 1)) is not None), None)
    if isinstance(value, list | tuple):
        return next((found for one in value if (found := _find(one, key, depth - 1)) is not None), None)
    return None
