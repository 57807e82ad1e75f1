"""The shards of the parameters on each rank: their memory alone, for a checkpoint or a seed gives the values.

Parameters are DTensors on the mesh of all ranks, which know the rank's part of the tensor. Checkpoints, Adam's moments
and the audits of copies go by that. A parameter is divided along the axes of the mesh in this order:

    pipeline    each rank has the parameters of its model chunks
    replicate   each rank has a copy
    tensor      each rank has its part of the parameters that the architecture cuts, and a copy of all others
    shard       each rank has some rows of that in FP32: the master weights, which the optimizer updates

The passes gather the shards once a step (passes/parameter_group.py).
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed.tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from model.architectures import Architecture, architecture_of
from model.decoder_sizes import DecoderSizes

AXES = ("pipeline", "replicate", "tensor", "shard")
"""The axes of the mesh of all devices."""


def allow_axes_in_any_order() -> None:
    """Let PyTorch 2.11 slice meshes whose ranks lie in another order than their axes, as later versions do: it refuses
    that, and its own comment says that it need not. Tensor-parallel ranks are next to each other and second to last.
    """
    meshes: Any = DeviceMesh
    slice_layout = meshes._get_slice_mesh_layout

    def layout(mesh: Any, names: tuple[str, ...]) -> Any:
        try:
            return slice_layout(mesh, names)
        except KeyError as error:
            if "ascending order" not in str(error):
                raise
            axes = [mesh._layout[(mesh.mesh_dim_names or ()).index(name)] for name in names]
            return type(mesh._layout)(tuple(axis.sizes for axis in axes), tuple(axis.strides for axis in axes))

    meshes._get_slice_mesh_layout = layout


if torch.__version__.startswith("2.11."):
    allow_axes_in_any_order()


def layers_of_chunks(num_layers: int, num_chunks: int) -> list[range]:
    """Return the consecutive layers of each model chunk, as evenly as possible. A remainder goes to the first chunks,
    for the last one has the output."""
    share, remainder = divmod(num_layers, num_chunks)
    starts = [number * share + min(number, remainder) for number in range(num_chunks + 1)]
    return [range(first, end) for first, end in itertools.pairwise(starts)]


def empty_chunks(sizes: DecoderSizes, mesh: DeviceMesh, chunks: int) -> list[dict[str, DTensor]]:
    """Return this rank's parameters by their names in the model's plain page, for each of its ``chunks`` model chunks,
    in the order of their layers."""
    architecture, shapes = architecture_of(sizes), parameter_shapes(sizes)
    pipeline, of_parameters = mesh["pipeline"], mesh[AXES[1:]]
    num_chunks, parameters_of_chunks = pipeline.size() * chunks, []
    for chunk in range(pipeline.get_local_rank(), num_chunks, pipeline.size()):
        names = names_of_chunk(shapes, architecture, sizes.num_layers, chunk, num_chunks)
        parameters_of_chunks.append(
            {name: _empty(shapes[name], of_parameters, placements(name, architecture)) for name in names}
        )
    return parameters_of_chunks


def parameter_shapes(sizes: DecoderSizes) -> dict[str, torch.Size]:
    """Return the shapes by the names of all parameters, in the model's own order, the same on all ranks."""
    with torch.device("meta"):
        plain = architecture_of(sizes).plain(sizes)
    return {name: parameter.shape for name, parameter in plain.named_parameters()}


def _empty(shape: torch.Size, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    return torch.distributed.tensor.empty(shape, dtype=torch.float32, device_mesh=mesh, placements=placements)


def names_of_chunk(
    names: Iterable[str], architecture: Architecture, num_layers: int, chunk: int, num_chunks: int
) -> list[str]:
    """Return the names of the parameters of a model chunk. A tied word table is in the first and in the last chunk:
    their gradients are added up (benchmark/training/engine/train_state.py)."""
    is_first, is_last = chunk == 0, chunk == num_chunks - 1
    layers = layers_of_chunks(num_layers, num_chunks)[chunk]

    def is_of_chunk(name: str) -> bool:
        if name.startswith(architecture.layers):
            return int(name.removeprefix(architecture.layers).split(".", 1)[0]) in layers
        return (is_first and name in architecture.input_names) or (is_last and name in architecture.output_names)

    chunk_names = [name for name in names if is_of_chunk(name)]
    # The last bits of the gradient's norm depend on this order, in which its squares are summed.
    return chunk_names if num_chunks == 1 else sorted(chunk_names, key=lambda name: name in architecture.input_names)


def placements(name: str, architecture: Architecture) -> tuple[Placement, Placement, Placement]:
    """Return the placements of a parameter on the axes replicate, tensor and shard."""
    axis = architecture.cut.get(".".join(name.split(".")[-2:]))
    return Replicate(), Replicate() if axis is None else Shard(axis), Shard(0)
