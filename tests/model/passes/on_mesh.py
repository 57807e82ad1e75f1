"""Small modules on a mesh as training has them, for the tests of this folder."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from benchmark.training.engine.distributed import build_mesh
from model.architectures import ARCHITECTURES, Architecture
from model.gpt3_config import GPT3Config
from model.passes.parameter_group import ParameterGroup
from model.passes.whole_parameter import WholeParameter
from model.sharding import AXES, placements
from tests.benchmark.runs import system_of


@contextmanager
def one_process() -> Iterator[DeviceMesh]:
    """A world of this process alone, and its mesh.

    DTensor remembers what it has worked out for a mesh, for equal ones, too: in a later world of the process parameters
    would come out on the mesh of an earlier one, whose groups may have had other names and are gone.
    """
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield mesh_of()
    finally:
        dist.destroy_process_group()


def mesh_of(*, replicas: int = 1, shards: int = 1, tensor: int = 1) -> DeviceMesh:
    """Of the processes of the world that was joined."""
    return build_mesh(system_of(replicas * shards * tensor, replicas=replicas, tensor_parallel=tensor), "cpu")


GPT3_ROW = ARCHITECTURES[GPT3Config]


def spread(plain: nn.Module, mesh: DeviceMesh, architecture: Architecture = GPT3_ROW) -> dict[str, DTensor]:
    """The parameters of a model or a block, with their values, cut and sharded as sharding.py does it."""
    return {
        name: distribute_tensor(
            value.detach().clone(), mesh[AXES[1:]], placements(name, architecture), src_data_rank=None
        )
        for name, value in plain.named_parameters()
    }


def whole_parameters(parameters: Mapping[str, DTensor], dtype: torch.dtype) -> dict[str, WholeParameter]:
    """Return the parameters by name, with their values gathered."""
    gathered = {name: WholeParameter(parameter, dtype) for name, parameter in parameters.items()}
    gather(gathered.values())
    return gathered


def gather(parameters: Iterable[WholeParameter]) -> None:
    """Values of all shards."""
    group = ParameterGroup(list(parameters))
    group.begin_gather()
    group.end_gather()


def sum_over_ranks(parameters: Iterable[WholeParameter]) -> None:
    """Sum the gradients of parameters that each tensor-parallel rank has in whole."""
    ParameterGroup(list(parameters)).begin_reduce()


def reduce(parameters: Iterable[WholeParameter]) -> None:
    """Sum the gradients over all ranks; the sums become the gradients of the DTensors."""
    group = ParameterGroup(list(parameters))
    group.begin_reduce()
    group.begin_reduce_replicas()
    group.end_reduce()


def own_part(whole: Tensor, parameter: WholeParameter, mesh: DeviceMesh) -> Tensor:
    """Return this tensor-parallel rank's part of a tensor of the parameter's shape."""
    for axis, (part_length, length) in enumerate(zip(parameter.value.shape, whole.shape, strict=True)):
        if part_length != length:
            return whole.chunk(mesh["tensor"].size(), axis)[mesh["tensor"].get_local_rank()]
    return whole


def sequence_first_rows(x_BSH: Tensor) -> Tensor:
    """[B, S, H] to [S x B, H]."""
    return x_BSH.transpose(0, 1).flatten(0, 1)


def draw(*shape: int, seed: int) -> Tensor:
    """Random numbers in FP64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
