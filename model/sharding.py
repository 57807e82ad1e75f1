"""The parameters that each process holds, and the part of each: memory alone, for values come from a checkpoint.

Parameters are DTensors on the mesh of all devices, which know what part of the whole a process holds: by that
checkpoints are read and written, and Adam's moments and the audits of copies follow it. In the order in which a
parameter is cut, the axes of the mesh are

    pipeline    each rank has the parameters of some of the layers
    replicate   each rank has a copy
    tensor      each rank has its part of the parameters that the architecture cuts, and a copy of all others
    shard       each rank has some rows of that, in FP32: master weights, and what the optimizer updates

What computes gathers the shards once a step (passes/whole_parameter.py).
"""

import itertools
from collections.abc import Iterable, Sequence

import torch
import torch.distributed.tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from model.architectures import Architecture, architecture_of
from model.decoder_sizes import DecoderSizes

AXES = ("pipeline", "replicate", "tensor", "shard")
"""The axes of the mesh of all devices."""


def layers_of_chunks(num_layers: int, num_pipeline_stages: int) -> list[range]:
    """Consecutive layers, dealt out evenly; the first stages get what is left over, for the last one has the output."""
    share, left_over = divmod(num_layers, num_pipeline_stages)
    starts = [number * share + min(number, left_over) for number in range(num_pipeline_stages + 1)]
    return [range(first, end) for first, end in itertools.pairwise(starts)]


def empty_chunks(config: DecoderSizes, mesh: DeviceMesh, chunks: int) -> list[dict[str, DTensor]]:
    """This process's parameters by their names in the model's plain page, for each of its chunks: one, or the stages
    that it has of an interleaved pipeline, in the order of their layers."""
    architecture, shapes = architecture_of(config), parameter_shapes(config)
    pipeline, of_parameters = mesh["pipeline"], mesh[AXES[1:]]
    stages, found = pipeline.size() * chunks, []
    for stage in range(pipeline.get_local_rank(), stages, pipeline.size()):
        names = names_of_chunk(shapes, architecture, config.num_layers, stage, stages)
        found.append({name: _empty(shapes[name], of_parameters, placements(name, architecture)) for name in names})
    return found


def parameter_shapes(config: DecoderSizes) -> dict[str, torch.Size]:
    """Return the shapes by the names of all parameters, in the model's own order, which all processes share."""
    with torch.device("meta"):
        plain = architecture_of(config).plain(config)
    return {name: parameter.shape for name, parameter in plain.named_parameters()}


def _empty(shape: torch.Size, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    return torch.distributed.tensor.empty(shape, dtype=torch.float32, device_mesh=mesh, placements=placements)


def names_of_chunk(
    names: Iterable[str], architecture: Architecture, num_layers: int, stage: int, stages: int
) -> list[str]:
    """Return the names of the parameters that a pipeline stage holds. A tied word table is in the first stage and in
    the last: their gradients are added up (benchmark/training/engine/train_state.py)."""
    is_first, is_last = stage == 0, stage == stages - 1
    layers = layers_of_chunks(num_layers, stages)[stage]

    def is_here(name: str) -> bool:
        if name.startswith(architecture.layers):
            return int(name.removeprefix(architecture.layers).split(".", 1)[0]) in layers
        return (is_first and name in architecture.input_names) or (is_last and name in architecture.output_names)

    here = [name for name in names if is_here(name)]
    # The last bits of the gradient's norm depend on this order, in which its squares are summed.
    return here if stages == 1 else sorted(here, key=lambda name: name in architecture.input_names)


def placements(name: str, architecture: Architecture) -> tuple[Placement, Placement, Placement]:
    """Return the placements of a parameter on the axes replicate, tensor and shard."""
    axis = architecture.cut.get(".".join(name.split(".")[-2:]))
    return Replicate(), Replicate() if axis is None else Shard(axis), Shard(0)
