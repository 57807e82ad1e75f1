"""A parameter's values gathered and its gradients summed, on several topologies. All numbers are exact in BF16."""

import itertools
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from model.passes.parameter_group import ParameterGroup
from model.passes.whole_parameter import WholeParameter
from model.sharding import AXES
from tests.benchmark.tiny import in_processes
from tests.model.passes.on_mesh import gather, mesh_of, one_process, own_part, reduce, whole_parameters

RANKS = 6
TOPOLOGIES = {"sharded": {"shards": 3, "tensor": 2}, "replicas": {"replicas": 2, "shards": 3}}
CUT = {"by rows": 0, "by columns": 1, "position": None, "bias": None}
SHAPES = {
    "by rows": (14, 4),  # 7 rows for each of two tensor-parallel ranks: shards of 3, 3 and 1
    "by columns": (8, 6),
    "position": (4, 2),  # 2, 2 and none
    "bias": (2,),  # fewer rows than shards
}


def _numbers(shape: tuple[int, ...], factor: int) -> Tensor:
    """Small integers, each element its own."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape) % 11 * factor - 5


def _parameters(mesh: DeviceMesh, dtype: torch.dtype, *, each_pass: bool = False) -> dict[str, WholeParameter]:
    """``each_pass``: gradients are summed after each pass."""
    state = {}
    for number, (name, shape) in enumerate(SHAPES.items()):
        axis = CUT[name]
        placements = Replicate(), Replicate() if axis is None else Shard(axis), Shard(0)
        state[name] = distribute_tensor(_numbers(shape, number + 1), mesh[AXES[1:]], placements, src_data_rank=None)
    parameters = whole_parameters(state, dtype)
    if each_pass:
        for parameter in parameters.values():
            parameter.scatter_each_pass()
    return parameters


def _of_shard(gathered: Tensor, parameter: WholeParameter, mesh: DeviceMesh) -> Tensor:
    """What this rank keeps of a tensor of the parameter's shape."""
    part, shards = own_part(gathered, parameter, mesh), mesh["shard"].size()
    rows = -(-part.shape[0] // shards)
    first = mesh["shard"].get_local_rank() * rows
    return part[first : first + rows]


def _terms(name: str, step: int, micro_batch: int, data_rank: int, tensor_rank: int) -> Tensor:
    """What a rank adds: tensor-parallel ranks have terms of their own only of a parameter that all have whole."""
    factor = 1 + step + 2 * micro_batch + 3 * data_rank
    return _numbers(SHAPES[name], factor + (tensor_rank if CUT[name] is None else 0))


def _compare() -> dict[str, float]:
    """Largest differences on this rank, by what was compared."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    differences = {}
    for topology, sizes in TOPOLOGIES.items():
        mesh = mesh_of(**sizes)
        for dtype, each_pass in itertools.product((torch.float32, torch.bfloat16), (False, True)):
            for what, ours, theirs in _steps(_parameters(mesh, dtype, each_pass=each_pass), mesh, each_pass=each_pass):
                assert ours.shape == theirs.shape
                difference = (ours.double() - theirs.double()).abs().max().item() if ours.numel() else 0.0
                differences[f"{topology}, {dtype}, {each_pass}, {what}"] = difference
    return differences


def _steps(
    parameters: dict[str, WholeParameter], mesh: DeviceMesh, *, each_pass: bool
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Two steps of two passes, in which all parameters go in one message each way. Of a sum that is still on its way,
    the next pass changes nothing."""
    group = ParameterGroup(list(parameters.values()))
    tensor_parallel, tensor_rank = mesh["tensor"].size(), mesh["tensor"].get_local_rank()
    data_parallel = dist.get_world_size() // tensor_parallel
    data_rank = dist.get_rank() // tensor_parallel
    for step in range(2):
        for number, (name, one) in enumerate(parameters.items(), 1):
            expected = own_part(_numbers(SHAPES[name], number), one, mesh) + step
            yield f"{name}: value in step {step}", one.value, expected
        for micro_batch in range(2):
            for name, one in parameters.items():
                terms = _terms(name, step, micro_batch, data_rank, tensor_rank)
                one.add(own_part(terms, one, mesh).to(one.value.dtype))
            if each_pass or micro_batch == 1:
                group.end_scatter()
                group.begin_reduce(last=micro_batch == 1)
        group.begin_reduce_replicas()
        group.end_reduce()
        for name, one in parameters.items():
            has_terms = tensor_parallel > 1 and CUT[name] is None
            assert one.has_gradient == (one.value.dim() == 1 or has_terms or not each_pass)
            ranks = range(tensor_parallel if CUT[name] is None else 1)
            every = [_terms(name, step, n, d, t) for n in range(2) for d in range(data_parallel) for t in ranks]
            gradient = one.parameter.grad
            assert isinstance(gradient, DTensor)
            assert (gradient.shape, gradient.placements) == (one.parameter.shape, one.parameter.placements)
            yield (
                f"{name}: gradient in step {step}",
                gradient.to_local(),
                _of_shard(sum(every, torch.tensor(0)), one, mesh),
            )
            one.parameter.grad = None
            with torch.no_grad():
                one.parameter.to_local().add_(1)
        gather(parameters.values())


@pytest.mark.slow
def test_values_and_gradients() -> None:
    for on_rank in in_processes(RANKS, _compare):
        assert (
            len(on_rank) == len(TOPOLOGIES) * len(SHAPES) * 16
        )  # values, gradients, precisions, steps, sums once a step or each pass
        assert not any(on_rank.values()), on_rank


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with one_process() as mesh:
        yield mesh


def alone(mesh: DeviceMesh, dtype: torch.dtype, name: str = "by columns") -> WholeParameter:
    """With one data-parallel rank."""
    return _parameters(mesh, dtype)[name]


def reduced(parameter: WholeParameter) -> Tensor:
    reduce([parameter])
    gradient = parameter.parameter.grad
    assert isinstance(gradient, DTensor)
    return gradient.to_local()


def test_one_rank_in_fp32_copies_nothing(mesh: DeviceMesh) -> None:
    parameter = alone(mesh, torch.float32)
    shard = parameter.parameter.to_local()
    assert parameter.value.data_ptr() == shard.data_ptr()
    parameter.add(torch.ones(8, 6))
    assert reduced(parameter).data_ptr() == parameter.gradient.data_ptr()


def test_values_in_bf16_are_rounded_when_they_are_gathered(mesh: DeviceMesh) -> None:
    parameter = alone(mesh, torch.bfloat16)
    with torch.no_grad():
        parameter.parameter.to_local().fill_(257.0)
    assert parameter.value.dtype == torch.bfloat16
    assert (parameter.value != 256).any()
    gather([parameter])
    assert (parameter.value == 256).all()
    assert (parameter.parameter.to_local() == 257).all()


def test_gradients_of_bf16_values_are_summed_in_fp32(mesh: DeviceMesh) -> None:
    """1,025 is no number of BF16."""
    bias, matrix = alone(mesh, torch.bfloat16, "bias"), alone(mesh, torch.bfloat16)
    bias.add_rows(torch.ones(1025, 2, dtype=torch.bfloat16))
    assert (bias.gradient == 1025).all()
    left, right = torch.ones(1024, 8, dtype=torch.bfloat16), torch.ones(1024, 6, dtype=torch.bfloat16)
    matrix.add_product(left, right)
    matrix.add_product(left[:1], right[:1])
    matrix.add(torch.ones(8, 6, dtype=torch.bfloat16))
    assert (matrix.gradient == 1026).all()
    assert reduced(matrix).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", ["add", "add_product", "gradient"])
def test_nothing_is_left_of_the_step_before(dtype: torch.dtype, first: str, mesh: DeviceMesh) -> None:
    """Whatever a step adds first, and to what a step adds nothing."""
    parameter = alone(mesh, dtype if dtype != torch.float64 else torch.float32)
    left, right = _numbers((3, 8), 1).to(dtype), _numbers((3, 6), 2).to(dtype)
    product = (left.t().float() @ right.float()).bfloat16().float()
    parameter.add_product(left, right)
    parameter.add_product(left, right)
    assert torch.equal(reduced(parameter), 2 * product)
    if first == "add":
        parameter.add(product)
    elif first == "add_product":
        parameter.add_product(left, right)
    else:
        parameter.gradient.add_(product)
    assert torch.equal(reduced(parameter), product)
    assert not reduced(parameter).any()
    assert parameter.gradient.shape == parameter.value.shape
