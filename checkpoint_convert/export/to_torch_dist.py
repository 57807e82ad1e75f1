"""To Megatron-Core's ``torch_dist``, for runs that start with ``--load OUTPUT`` (formats/torch_files/torch_dist.py).

Weights and Adam's moments, of a converted checkpoint or a run's own. The FP32 weights are found under the names of the
plain and of the distributed optimizer; with ``--dtype fp32`` they are the weights, too: the same bytes, three names.

A file holds as many layers of an array as fit into 256 MB, or one. Memory: twice a layer of the largest array (2.4 GB
at 175B) for each worker.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from checkpoint_convert.export.dcp_shards import (
    Shard,
    StoredObject,
    StoredTensor,
    save_object,
    save_shard,
    shard_file,
    write_metadata,
)
from checkpoint_convert.export.export_files import Export, ExportFile, HashingFile, Made, run_export
from checkpoint_convert.export.tensor_source import MODEL, MOMENTS, TensorSource, open_tensor_source, opened_source
from checkpoint_convert.formats.array_table import ARRAYS, Array
from checkpoint_convert.formats.boxes import Box, divided, shape_of, whole_box
from checkpoint_convert.formats.common_files import PARAM_GROUP
from checkpoint_convert.formats.torch_files.torch_dist import (
    BACKEND,
    COMMON,
    CONFIG,
    DECODER_LAYERS,
    EXP_AVG,
    EXP_AVG_SQ,
    MASTERS,
    TRACKER,
    core_name,
)
from checkpoint_convert.model_sizes.axis_sizes import parameter_axis_sizes
from checkpoint_convert.model_sizes.parameters import layer_name, parameter_shapes

STAGE = "to-torch-dist"
LARGEST_FILE_BYTES = 1 << 28
"""Of the layers of an array that are written together."""
BACKENDS = {
    "sharded_backend": BACKEND,
    "sharded_backend_version": 1,
    "common_backend": "torch",
    "common_backend_version": 1,
}
CONTENT = {
    "distrib_optim_sharding_type": "fully_reshardable",
    "distrib_optim_fully_reshardable_mem_efficient": False,
    "singleton_local_shards": False,
    "chained_optim_avoid_prefix": True,
}
"""How Megatron-Core is to look for what the optimizer keeps (training/checkpointing.py)."""
MODULES_WITH_STATE = (
    "self_attention.linear_qkv",
    "self_attention.linear_proj",
    "self_attention.core_attention",
    "mlp.linear_fc1",
    "mlp.linear_fc2",
)
"""Modules of a layer that ask for an ``_extra_state``, which without FP8 is empty."""


@dataclass(frozen=True)
class LayersFile:
    """A shard: some layers of an array, or all of it."""

    folder: Path
    """The source."""
    inner: str
    """Folder below the output."""
    shard: Shard
    group: str
    """model, exp_avg or exp_avg_sq."""
    array: Array

    @property
    def name(self) -> str:
        return f"{self.inner}/{self.shard.file}"

    @property
    def bytes(self) -> int:
        return self.shard.bytes

    def write(self, file: HashingFile) -> None:
        values = _read(opened_source(self.folder), self.group, self.array, self.shard.box)
        save_shard(values.to(self.shard.tensors[0].dtype), file)


@dataclass(frozen=True)
class EmptyObjectFile:
    """What modules without a state of their own are given."""

    name: str
    bytes: int = 1000

    def write(self, file: HashingFile) -> None:
        save_object([None], file)


def to_torch_dist(
    folder: Path, output: Path, *, dtype: str = "bf16", workers: int = 1, force: bool = False
) -> int | None:
    """Export a Megatron zarr checkpoint or a run's own; returns the bytes written, None if they are there already.

    ``dtype`` of the weights is fp32 or bf16. Raises InputError for a source that is incomplete or damaged, a full disk,
    and for other work under the output's name.
    """
    source = open_tensor_source(folder)
    opened_source.cache_clear()
    sizes: Mapping[str, int] = {}
    for group in (MODEL, *MOMENTS):
        sizes = parameter_axis_sizes(folder, source.shapes(group))
    iteration = source.iteration()
    inner = f"iter_{iteration:07d}"
    shards = list(_shards(parameter_shapes(sizes), sizes["L"], dtype))
    empty = shard_file(len(shards))
    files: list[ExportFile] = [LayersFile(folder, inner, *shard) for shard in shards]
    files.append(EmptyObjectFile(f"{inner}/{empty}"))

    def write_small_files(partial: Path, made: Mapping[str, Made]) -> None:
        below = {Path(name).name: file for name, file in made.items()}
        objects = [StoredObject(name, empty) for name in _empty_states(sizes["L"])]
        write_metadata(partial / inner, [shard for shard, *_ in shards], below, objects)
        (partial / inner / CONFIG).write_text(json.dumps(BACKENDS))
        torch.save(_common(iteration), partial / inner / COMMON)
        (partial / TRACKER).write_text(f"{iteration}\n")

    export = Export(STAGE, {"dtype": dtype}, folder, output, ("tensorstore", "torch"))
    return run_export(export, files, write_small_files, workers=workers, force=force)


def _shards(shapes: Mapping[str, tuple[int, ...]], layers: int, dtype: str) -> Iterator[tuple[Shard, str, Array]]:
    """Every shard, the group it is read from, and its array."""
    number = 0
    for group, prefixes, stored_as in _kinds(dtype):
        for array in ARRAYS:
            shape = shapes[layer_name(array.megatron, 0)] if array.stacked else shapes[array.megatron]
            whole = (layers, *shape) if array.stacked else shape
            tensors = tuple(StoredTensor(prefix + core_name(array), whole, stored_as) for prefix in prefixes)
            for box in _boxes(whole, array.stacked, stored_as.itemsize):
                yield Shard(shard_file(number), box, tensors), group, array
                number += 1


def _kinds(dtype: str) -> list[tuple[str, tuple[str, ...], torch.dtype]]:
    """What is read, under which prefixes it is found, and as what it is stored."""
    weights: list[tuple[str, tuple[str, ...], torch.dtype]] = [(MODEL, ("", *MASTERS), torch.float32)]
    if dtype == "bf16":
        weights = [(MODEL, ("",), torch.bfloat16), (MODEL, MASTERS, torch.float32)]
    return [*weights, ("exp_avg", (EXP_AVG,), torch.float32), ("exp_avg_sq", (EXP_AVG_SQ,), torch.float32)]


def _boxes(shape: tuple[int, ...], stacked: bool, itemsize: int) -> Iterator[Box]:
    """As many layers together as a file may hold; what no layer owns is one."""
    if not stacked:
        yield whole_box(shape)
        return
    together = max(1, LARGEST_FILE_BYTES // (math.prod(shape[1:]) * itemsize))
    yield from divided(whole_box(shape), (together, *shape[1:]))


def _read(source: TensorSource, group: str, array: Array, box: Box) -> Tensor:
    if not array.stacked:
        return source.read(f"{group}/{array.megatron}", shape_of(box))
    values = torch.empty(shape_of(box))
    for at, layer in enumerate(range(box[0].start, box[0].stop)):
        values[at] = source.read(f"{group}/{layer_name(array.megatron, layer)}", shape_of(box)[1:])
    return values


def _empty_states(layers: int) -> list[str]:
    """Names of the objects that say nothing, as ShardedObject makes them of its key and its place among several."""
    of_layers = [
        f"{DECODER_LAYERS}{module}._extra_state/shard_{layer}_{layers}"
        for module in MODULES_WITH_STATE
        for layer in range(layers)
    ]
    return [*of_layers, "decoder.final_layernorm._extra_state/shard_0_1"]


def _common(iteration: int) -> dict[str, Any]:
    """What is no tensor. Megatron keeps its command line there, too, and there is none of it."""
    group = {**PARAM_GROUP, "step": iteration, "is_expert_parallel": False, "is_decoupled_lr": False}
    optimizer = {"optimizer": {"param_groups": [group]}, "param_state_sharding_type": "fully_reshardable"}
    return {
        "checkpoint_version": 3.0,
        "iteration": iteration,
        "optimizer": optimizer,
        "content_metadata": dict(CONTENT),
    }
