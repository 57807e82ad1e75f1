"""Weights as one matrix: where their values and gradients lie, and which weights stay apart."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from model.passes.linear.joined_weight import JoinedWeight
from model.passes.whole_parameter import WholeParameter
from model.sharding import AXES
from tests.model.passes.on_mesh import draw, gather, one_process, reduce

ROWS, WIDTH, TOKENS = (6, 2, 4), 8, 5


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with one_process() as mesh:
        yield mesh


def parameters_of(mesh: DeviceMesh, dtype: torch.dtype) -> list[WholeParameter]:
    placements = Replicate(), Replicate(), Shard(0)
    masters = [draw(rows, WIDTH, seed=rows).float() for rows in ROWS]
    state = [distribute_tensor(master, mesh[AXES[1:]], placements, src_data_rank=None) for master in masters]
    return [WholeParameter(parameter, dtype) for parameter in state]


def gradients(parameters: Sequence[WholeParameter]) -> Tensor:
    reduce(parameters)
    published = [parameter.parameter.grad for parameter in parameters]
    return torch.cat([gradient.to_local() for gradient in published if isinstance(gradient, DTensor)])


@pytest.mark.parametrize(("dtype", "matrices"), [(torch.bfloat16, 1), (torch.float64, 1), (torch.float32, len(ROWS))])
def test_a_matrix_holds_the_parameters(mesh: DeviceMesh, dtype: torch.dtype, matrices: int) -> None:
    """But FP32 values of one shard are the shard itself. A step's first product replaces the sums of the one before."""
    parameters = parameters_of(mesh, dtype)
    weights = JoinedWeight.of(parameters)
    assert len(weights) == matrices
    gather(parameters)
    values = torch.cat([parameter.value for parameter in parameters])
    assert torch.equal(torch.cat([weight.value for weight in weights]), values)
    assert torch.equal(values, torch.cat([draw(rows, WIDTH, seed=rows).float() for rows in ROWS]).to(dtype))
    left, right = draw(TOKENS, sum(ROWS), seed=1).to(dtype), draw(TOKENS, WIDTH, seed=2).to(dtype)
    product = (left.t() @ right).float()
    columns = [len(weight.value) for weight in weights]
    for products in (1, 2):
        for _ in range(products):
            for weight, part in zip(weights, torch.split(left, columns, dim=1), strict=True):
                weight.add_product(part, right)
        torch.testing.assert_close(gradients(parameters), products * product, rtol=1e-6, atol=1e-6)


def test_a_parameter_with_terms_of_its_own_keeps_them(mesh: DeviceMesh) -> None:
    parameters = parameters_of(mesh, torch.bfloat16)
    (weight,) = JoinedWeight.of(parameters)
    left, right = torch.ones(TOKENS, sum(ROWS)).bfloat16(), torch.ones(TOKENS, WIDTH).bfloat16()
    parameters[0].add(torch.ones(ROWS[0], WIDTH))
    weight.add_product(left, right)
    parameters[2].add(torch.ones(ROWS[2], WIDTH))
    expected = torch.full((sum(ROWS), WIDTH), float(TOKENS))
    expected[: ROWS[0]] += 1
    expected[-ROWS[2] :] += 1
    assert torch.equal(gradients(parameters), expected)
    assert not gradients(parameters).any()
