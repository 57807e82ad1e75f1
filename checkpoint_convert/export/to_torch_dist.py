"""Export to Megatron-Core's ``torch_dist``, for runs that start with ``--load OUTPUT``.

    OUTPUT/latest_checkpointed_iteration.txt    the iteration
    OUTPUT/iter_0004000/metadata.json           {"sharded_backend": "torch_dist", …}
    OUTPUT/iter_0004000/.metadata, *.distcp     the tensors; all layers of a parameter are one array [L, …]
    OUTPUT/iter_0004000/common.pt               iteration and Adam's step

Weights have the names of the table CORE; Adam's moments have the same names after ``optimizer.state.exp_avg.`` and the
like. The FP32 weights are found under the names of the plain optimizer (``optimizer.state.fp32_param.``) and of the
distributed one (``fully_reshardable``, ``optimizer.state.param.``); with ``--dtype fp32`` they are the weights, too:
the same bytes, three names. The names are those of Megatron-Core 0.16 (core/models/gpt, core/optimizer,
training/checkpointing.py); the attention's rows lie [head][q, k, v][dimension] there as they do here.

A file holds as many layers of an array as fit into 256 MB, or one. Memory: twice a layer of the largest array (2.4 GB
at 175B) for each worker. PyTorch is imported when the first file is written: what is refused is refused before.
"""

import json
import math
import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import ml_dtypes
import numpy as np

from checkpoint_convert.export.exported_arrays import (
    GROUPS,
    MODEL,
    Exported,
    exported_arrays,
    exported_files,
    file_task,
    model_of,
    open_source,
)
from checkpoint_convert.formats.array_table import table_rows
from checkpoint_convert.formats.axis_sizes import megatron_axis_sizes
from checkpoint_convert.formats.boxes import Box, divided, items_in, shape_of, whole_box
from checkpoint_convert.formats.checkpoint_files import DCP_INDEX, TRACKER, Checkpoint
from checkpoint_convert.formats.step_files import LARGEST_STEP
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.summed_output import Produced, Product, produce
from checksums.common_file import COMMON, METADATA, PARAM_GROUP
from foundation.errors import InputError
from foundation.sizes import require_between, require_workers

EXP_AVG, EXP_AVG_SQ = "optimizer.state.exp_avg.", "optimizer.state.exp_avg_sq."
MASTERS = ("optimizer.state.fp32_param.", "optimizer.state.param.")
StoredDtype = Literal["float32", "bfloat16"]
DTYPE_BYTES: dict[StoredDtype, int] = {"float32": 4, "bfloat16": 2}
LARGEST_FILE_BYTES = 1 << 28
"""Most bytes of an array's layers that are written together."""

# Megatron's name (array_table.py) and Megatron-Core's
CORE = dict(
    table_rows("""
embedding.word_embeddings.weight                      embedding.word_embeddings.weight
embedding.position_embeddings.weight                  embedding.position_embeddings.weight
encoder.final_layernorm.weight                        decoder.final_layernorm.weight
encoder.final_layernorm.bias                          decoder.final_layernorm.bias
encoder.layers.input_layernorm.weight                 decoder.layers.self_attention.linear_qkv.layer_norm_weight
encoder.layers.input_layernorm.bias                   decoder.layers.self_attention.linear_qkv.layer_norm_bias
encoder.layers.post_attention_layernorm.weight        decoder.layers.mlp.linear_fc1.layer_norm_weight
encoder.layers.post_attention_layernorm.bias          decoder.layers.mlp.linear_fc1.layer_norm_bias
encoder.layers.self_attention.query_key_value.weight  decoder.layers.self_attention.linear_qkv.weight
encoder.layers.self_attention.query_key_value.bias    decoder.layers.self_attention.linear_qkv.bias
encoder.layers.self_attention.dense.weight            decoder.layers.self_attention.linear_proj.weight
encoder.layers.self_attention.dense.bias              decoder.layers.self_attention.linear_proj.bias
encoder.layers.mlp.dense_h_to_4h.weight               decoder.layers.mlp.linear_fc1.weight
encoder.layers.mlp.dense_h_to_4h.bias                 decoder.layers.mlp.linear_fc1.bias
encoder.layers.mlp.dense_4h_to_h.weight               decoder.layers.mlp.linear_fc2.weight
encoder.layers.mlp.dense_4h_to_h.bias                 decoder.layers.mlp.linear_fc2.bias
""")
)
MODULES_WITH_STATE = (
    "self_attention.linear_qkv",
    "self_attention.linear_proj",
    "self_attention.core_attention",
    "mlp.linear_fc1",
    "mlp.linear_fc2",
)
"""Modules of a layer that require an ``_extra_state``, which is empty without FP8."""
BACKENDS = {
    "sharded_backend": "torch_dist",
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
"""Settings that tell Megatron-Core how to look for the optimizer's state (training/checkpointing.py)."""


def to_torch_dist(
    folder: Path,
    output: Path,
    *,
    dtype: str = "bf16",
    step: int | None = None,
    workers: int = 1,
    force: bool = False,
) -> Produced | None:
    """Export a Megatron zarr checkpoint or a run's own; return None if the export is there already.

    ``dtype`` of the weights is fp32 or bf16; ``step`` is Adam's, if the checkpoint's files do not give it. Raises
    InputError for a source that is incomplete or damaged, and for other work under the output's name.
    """
    require_workers(workers)
    checkpoint = open_source(folder)
    if (model := model_of(checkpoint)) != "gpt3":
        raise InputError(f"{folder}: a model of {model}, but to-torch-dist writes GPT-3 only; use to-huggingface")
    iteration, step = _told_steps(checkpoint, step)
    arrays = {group: exported_arrays(checkpoint, group) for group in GROUPS}
    for group_arrays in arrays.values():
        shapes = {array: stored.shape for array, stored in group_arrays.items()}
        sizes = megatron_axis_sizes(folder, shapes, lambda hidden: 1)  # heads occur only as times their dimensions
    inner = f"iter_{iteration:07d}"
    boxes = list(_boxes(arrays, dtype))
    empty = dcp_file_name(len(boxes))
    tasks = [
        file_task(f"{inner}/{box.file}", partial(write_box, stored, box), items_in(box.box) * DTYPE_BYTES[box.dtype])
        for box, stored in boxes
    ]

    def last(written: Mapping[str, int]) -> dict[str, bytes]:
        bytes_of = {Path(name).name: size for name, size in written.items()}
        index = dcp_metadata([box for box, _ in boxes], bytes_of, dict.fromkeys(_empty_states(sizes["L"]), empty))
        return {
            f"{inner}/{DCP_INDEX}": index,
            f"{inner}/{METADATA}": json.dumps(BACKENDS).encode(),
            f"{inner}/{COMMON}": _common(iteration, step),
            TRACKER: f"{iteration}\n".encode(),
        }

    product = Product(
        stage="to-torch-dist",
        options={"dtype": dtype, "iteration": iteration, "step": step},
        source=exported_files(checkpoint, [*GROUPS]),
        tasks=[*tasks, file_task(f"{inner}/{empty}", _write_nothing, 1000)],
        threads=workers,
        packages=["torch"],
        last=last,
    )
    return produce(product, output, force=force)


def _told_steps(checkpoint: Checkpoint, option: int | None) -> tuple[int, int]:
    """Return the iteration and Adam's step of a checkpoint; ``given`` (``--step``) is used if its files have no step.

    Raises InputError if neither gives the step, or the files contradict ``given``: Adam's step is never assumed.
    """
    if option is not None:
        require_between(option, 0, LARGEST_STEP, "--step")
    iteration, recorded = checkpoint.steps()
    if option is not None and recorded not in (None, option):
        raise InputError(f"--step {option}: {checkpoint.path} tells that Adam's step is {recorded}; leave --step out")
    step = option if recorded is None else recorded
    if step is None:
        raise InputError(f"{checkpoint.path}: no common.pt and no run's files tell Adam's step; pass --step")
    return (step if iteration is None else iteration), step


@dataclass(frozen=True)
class TensorBox:
    """A box of one or more tensors, all of one shape, dtype and values, in the file ``file``."""

    file: str
    box: Box
    names: tuple[str, ...]
    """Names of the tensors."""
    shape: tuple[int, ...]
    """Shape of each whole tensor."""
    dtype: StoredDtype


def write_box(stored: StoredArray, box: TensorBox, file: IO[bytes]) -> None:
    """Write the values of a box, some layers of an array or all of it."""
    import torch

    values = stored.read(box.box)
    if box.dtype == "bfloat16":  # rounded as the converter rounds
        torch.save(torch.from_numpy(values.astype(ml_dtypes.bfloat16).view(np.uint16)).view(torch.bfloat16), file)
    else:
        torch.save(torch.from_numpy(values), file)


def _write_nothing(file: IO[bytes]) -> None:
    """Write the file of the empty states."""
    import torch

    torch.save([None], file)


def _boxes(arrays: Mapping[str, Exported], dtype: str) -> Iterator[tuple[TensorBox, StoredArray]]:
    """Yield the boxes, each for a file of its own, with the array that each is read from.

    A box holds as many layers of an array as a file may; an array that no layer owns is one box.
    """
    tensors: list[tuple[str, tuple[str, ...], StoredDtype]] = [(MODEL, ("", *MASTERS), "float32")]
    if dtype == "bf16":
        tensors = [(MODEL, ("",), "bfloat16"), (MODEL, MASTERS, "float32")]
    tensors += [("exp_avg", (EXP_AVG,), "float32"), ("exp_avg_sq", (EXP_AVG_SQ,), "float32")]
    number = 0
    for group, prefixes, stored_as in tensors:
        for array, stored in arrays[group].items():
            names = tuple(prefix + CORE[array.megatron] for prefix in prefixes)
            together = max(1, LARGEST_FILE_BYTES // (math.prod(stored.shape[1:]) * DTYPE_BYTES[stored_as]))
            extents = (together if array.stacked else stored.shape[0], *stored.shape[1:])
            for box in divided(whole_box(stored.shape), extents):
                yield TensorBox(dcp_file_name(number), box, names, stored.shape, stored_as), stored
                number += 1


def _empty_states(layers: int) -> list[str]:
    """Return the names of the empty objects, which ShardedObject makes from its key and its place among several."""
    of_layers = [
        f"decoder.layers.{module}._extra_state/shard_{layer}_{layers}"
        for module in MODULES_WITH_STATE
        for layer in range(layers)
    ]
    return [*of_layers, "decoder.final_layernorm._extra_state/shard_0_1"]


def _common(iteration: int, step: int) -> bytes:
    """Return the content of common.pt, without the command line that Megatron also keeps there."""
    import torch

    group = {**PARAM_GROUP, "step": step, "is_expert_parallel": False, "is_decoupled_lr": False}
    optimizer = {"optimizer": {"param_groups": [group]}, "param_state_sharding_type": "fully_reshardable"}
    content: dict[str, Any] = {
        "checkpoint_version": 3.0,
        "iteration": iteration,
        "optimizer": optimizer,
        "content_metadata": dict(CONTENT),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / COMMON  # PyTorch writes the file's name into the archive
        torch.save(content, path)
        return path.read_bytes()


def dcp_file_name(number: int) -> str:
    """Return the name that PyTorch gives to a file of one process."""
    return f"__0_{number}.distcp"


def dcp_metadata(boxes: Sequence[TensorBox], sizes: Mapping[str, int], objects: Mapping[str, str]) -> bytes:
    """Return the content of ``.metadata``.

    ``sizes``: bytes of the files by name. ``objects``: the file of each thing that is no tensor; several may share one.
    """
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        BytesStorageMetadata,
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        StorageMeta,
        TensorProperties,
        TensorStorageMetadata,
    )

    names: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    locations: dict[MetadataIndex, _StorageInfo] = {}
    for tensor_box in boxes:
        offsets = torch.Size([side.start for side in tensor_box.box])
        properties = TensorProperties(dtype=getattr(torch, tensor_box.dtype))
        for name in tensor_box.names:
            tensor = names.setdefault(name, TensorStorageMetadata(properties, torch.Size(tensor_box.shape), []))
            assert isinstance(tensor, TensorStorageMetadata)
            index = MetadataIndex(name, offsets, len(tensor.chunks))
            locations[index] = _StorageInfo(tensor_box.file, 0, sizes[tensor_box.file])
            tensor.chunks.append(ChunkStorageMetadata(offsets, torch.Size(shape_of(tensor_box.box))))
    for name, file in objects.items():
        names[name] = BytesStorageMetadata()
        locations[MetadataIndex(name)] = _StorageInfo(file, 0, sizes[file])
    metadata = Metadata(
        state_dict_metadata=names,
        planner_data={name: (name,) for name in names},
        storage_data=locations,
        storage_meta=StorageMeta(),
    )
    return pickle.dumps(metadata)
