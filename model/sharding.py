"""Which parameters each process has, and which part of each: memory alone, for values come from a checkpoint.

Parameters are DTensors on the mesh of all devices, which know what part of the whole a process holds: by that
checkpoints are read and written, and Adam's moments and the audits of copies follow it. In the order in which a
parameter is cut, the axes of the mesh are

    pipeline    each rank has the parameters of some of the layers
    replicate   each rank has a copy
    tensor      each rank has its part of the parameters in CUT, and a copy of all others
    shard       each rank has some rows of that, in FP32: master weights, and what the optimizer updates

What computes gathers the shards once a step (passes/whole_parameter.py).
"""

import itertools
from collections.abc import Iterable, Sequence

import torch
import torch.distributed.tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config

AXES = ("pipeline", "replicate", "tensor", "shard")
"""Of the mesh of all devices."""

WORDS = "embedding.word_embeddings.weight"
POSITIONS = "embedding.position_embeddings.weight"
LAYERS = "encoder.layers."
FINAL_NORM = "encoder.final_layernorm"

CUT = {
    "word_embeddings.weight": 0,
    "query_key_value.weight": 0,
    "query_key_value.bias": 0,
    "dense.weight": 1,
    "dense_h_to_4h.weight": 0,
    "dense_h_to_4h.bias": 0,
    "dense_4h_to_h.weight": 1,
}
"""Axis along which tensor-parallel ranks share a parameter, by the end of its name (docs/facts/reference.md d): the
vocabulary's rows, heads, feed-forward columns. All others are whole on each rank."""


def layers_of_pipeline_stages(num_layers: int, num_pipeline_stages: int) -> list[range]:
    """Consecutive layers, dealt out evenly; the first stages get what is left over, for the last one has the output."""
    share, left_over = divmod(num_layers, num_pipeline_stages)
    starts = [number * share + min(number, left_over) for number in range(num_pipeline_stages + 1)]
    return [range(first, end) for first, end in itertools.pairwise(starts)]


def empty_chunks(config: GPT3Config, mesh: DeviceMesh, chunks: int) -> list[dict[str, DTensor]]:
    """This process's parameters by their names in ``gpt3.py``, for each of its chunks: one, or the stages that it has
    of an interleaved pipeline, in the order of their layers."""
    with torch.device("meta"):
        shapes = {name: parameter.shape for name, parameter in GPT3(config).named_parameters()}
    pipeline, of_parameters = mesh["pipeline"], mesh[AXES[1:]]
    stages, found = pipeline.size() * chunks, []
    for stage in range(pipeline.get_local_rank(), stages, pipeline.size()):
        names = names_of_stage(shapes, config.num_layers, stage, stages)
        found.append({name: _empty(shapes[name], of_parameters, placements(name)) for name in names})
    return found


def _empty(shape: torch.Size, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    return torch.distributed.tensor.empty(shape, dtype=torch.float32, device_mesh=mesh, placements=placements)


def names_of_stage(names: Iterable[str], num_layers: int, stage: int, stages: int) -> list[str]:
    """Those of the model's parameters that a pipeline stage has. The word table is in the first stage and in the last:
    their gradients are added up (benchmark/training/engine/tied_table.py)."""
    is_first, is_last = stage == 0, stage == stages - 1
    layers = layers_of_pipeline_stages(num_layers, stages)[stage]

    def is_here(name: str) -> bool:
        if name.startswith(LAYERS):
            return int(name.removeprefix(LAYERS).split(".", 1)[0]) in layers
        if name.startswith(FINAL_NORM):
            return is_last
        return is_first or (is_last and name == WORDS)

    here = [name for name in names if is_here(name)]
    # The last bits of the gradient's norm depend on this order, in which its squares are summed.
    return here if stages == 1 else sorted(here, key=lambda name: name in (WORDS, POSITIONS))


def placements(name: str) -> tuple[Placement, Placement, Placement]:
    """How a parameter lies on the axes replicate, tensor and shard."""
    axis = CUT.get(".".join(name.split(".")[-2:]))
    return Replicate(), Replicate() if axis is None else Shard(axis), Shard(0)
