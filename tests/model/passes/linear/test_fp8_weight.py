"""Weights in FP8 on several ranks: each is the cast of the whole master weight, whatever its shards are."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from model.measuring_kernels import largest_of_rows
from model.passes.linear.fp8_kernels import GRADIENTS, VALUES
from model.passes.linear.fp8_operand import Fp8Gather, cast, product
from model.passes.linear.fp8_weight import Fp8Parameter, Fp8Weight, rescale
from model.passes.linear.raw_operand import RawOperand
from model.passes.parameter_group import ParameterGroup
from model.passes.tensor_group import TensorGroup, all_gather_single, run_together
from model.passes.whole_parameter import WholeParameter
from model.sharding import AXES
from tests.benchmark.tiny import in_processes
from tests.model.passes.on_mesh import draw, mesh_of, one_process

SHARDS = 3
SHAPES = {"even": ((48, 32), (24, 32)), "rows behind the last one": ((32, 16), (16, 16)), "alone": ((32, 48),)}
"""Shapes of the parameters of a weight: of the second one's, the shards have 11, 11 and 10 rows, and 6, 6 and 4."""


def masters(name: str) -> list[Tensor]:
    """The largest value is in the last shard of the last parameter."""
    values = [draw(*shape, seed=number).float() for number, shape in enumerate(SHAPES[name])]
    values[-1][-1, 0] = 100.0
    return values


def weight_of(values: list[Tensor], mesh: DeviceMesh) -> Fp8Weight:
    placements = Replicate(), Replicate(), Shard(0)
    parameters = (distribute_tensor(value, mesh[AXES[1:]], placements, src_data_rank=None) for value in values)
    return Fp8Weight([Fp8Parameter(parameter, torch.bfloat16) for parameter in parameters])


def gather(weight: Fp8Weight, *others: WholeParameter) -> None:
    group = ParameterGroup([*weight.parameters, *others], [weight.refresh])
    rescale([weight])
    group.begin_gather()
    group.end_gather()


def same(ours: Tensor, theirs: Tensor | None) -> bool:
    return theirs is not None and torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))


def examine(mesh: DeviceMesh) -> dict[str, bool]:
    results = {}
    for name in SHAPES:
        values = masters(name)
        weight = weight_of(values, mesh)
        for factor in (1.0, 2.0**-9, 3.0):  # as weights change from step to step
            for parameter, value in zip(weight.parameters, values, strict=True):
                value.mul_(factor)
                parameter.parameter.to_local().mul_(factor)
            gather(weight)
            expected = cast(RawOperand(torch.cat(values)), VALUES, keeps_rows=True, transposed=True)
            results[f"{name}, {factor}"] = (
                same(weight.rows, expected.rows)
                and same(weight.transpose, expected.transpose)
                and torch.equal(weight.reciprocal, expected.reciprocal)
            )
        local = weight.parameters[0].parameter.to_local()
        for broken in (math.nan, math.inf):
            if dist.get_rank() == 0:
                local[0, 0] = broken
            gather(weight)
            results[f"{name}, {broken}"] = bool(weight.rows.float().isnan().all() and weight.reciprocal.isnan())
    return results


def mixed_message(mesh: DeviceMesh) -> dict[str, bool]:
    """NCCL asks for one type of all tensors of a message; Gloo does not."""
    weight = weight_of(masters("even"), mesh)
    types: set[torch.dtype] = set()
    bias = distribute_tensor(draw(30, seed=9).float(), mesh[AXES[1:]], (Replicate(), Replicate(), Shard(0)))
    parameter = WholeParameter(bias, torch.bfloat16)

    def note_types(output: Tensor, shard: Tensor, **options: Any) -> Any:
        types.update((output.dtype, shard.dtype))
        return all_gather_single(output, shard, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.passes.parameter_group.all_gather_single", note_types)
        gather(weight, parameter)
    expected = cast(RawOperand(torch.cat(masters("even"))), VALUES, keeps_rows=True, transposed=False)
    return {
        "one type": len(types) == 1,
        "FP8": same(weight.rows, expected.rows),
        "BF16": torch.equal(parameter.value, draw(30, seed=9).bfloat16()),
    }


def gathered_operands() -> dict[str, bool]:
    """A tensor of all ranks, of which each casts its rows, is what a cast of the whole one would be."""
    group, rank = TensorGroup(mesh_of(tensor=SHARDS)["tensor"]), dist.get_rank()
    results: dict[str, bool] = {}
    for name, last in {"numbers": 100.0, "an infinity": math.inf, "a NaN": math.nan}.items():
        x = draw(3 * 16, 32, seed=5).bfloat16()
        x[-1, -1] = last
        for dtype in (VALUES, GRADIENTS):
            expected = cast(RawOperand(x), dtype, keeps_rows=True, transposed=True)
            own = x.chunk(SHARDS)[rank]
            for raw in (RawOperand(own), RawOperand(own, largest_of_rows(own)), RawOperand(own, None, expected.scale)):
                (whole,) = run_together(Fp8Gather(raw, dtype, group).result())
                operand = cast(whole, dtype, keeps_rows=True, transposed=True)
                assert operand.rows is not None and operand.transpose is not None
                is_whole = same(operand.rows, expected.rows) and same(operand.transpose, expected.transpose)
                results[f"{name}, {len(results)}"] = is_whole if math.isfinite(last) else math.isnan(operand.reciprocal)
    return results


def _on_three_ranks() -> tuple[dict[str, bool], dict[str, bool], dict[str, bool]]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = mesh_of(shards=SHARDS)
    return examine(mesh), mixed_message(mesh), gathered_operands()


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with one_process() as mesh:
        yield mesh


def assert_all(results: Mapping[str, bool]) -> None:
    assert len(results) == len(SHAPES) * 5
    assert [name for name, is_so in results.items() if not is_so] == []


def test_a_weight_is_the_cast_of_its_master(mesh: DeviceMesh) -> None:
    assert_all(examine(mesh))


def test_shards_are_cast_by_the_largest_value_of_all(mesh: DeviceMesh) -> None:
    """And a value that is not finite makes the weight NaN on all ranks, whichever rank has it."""
    for results, mixed, gathered in in_processes(SHARDS, _on_three_ranks):
        assert_all(results)
        assert all(gathered.values()), gathered
        assert mixed == {"one type": True, "FP8": True, "BF16": True}


def test_a_weight_takes_the_memory_of_two_copies(mesh: DeviceMesh) -> None:
    """As much as in BF16; its parameters' values lie in it."""
    weight = weight_of(masters("even"), mesh)
    first, second = weight.parameters
    assert first.value.data_ptr() == weight.rows.data_ptr()
    assert second.value.data_ptr() == weight.rows[48:].data_ptr()
    assert weight.rows.nbytes + weight.transpose.nbytes == 2 * (48 + 24) * 32


@pytest.mark.parametrize("shape", SHAPES)
def test_products_rounded_to_bf16_are_summed_in_fp32_whatever_their_number(mesh: DeviceMesh, shape: str) -> None:
    """Also those that have waited in vain for others."""
    weights = {together: weight_of(masters(shape), mesh) for together in (1, 2, 4)}
    rows, columns = weights[1].rows.shape
    sums, exact, roundings = torch.zeros(rows, columns), *torch.zeros(2, rows, columns, dtype=torch.float64)
    for micro_batch in range(7):
        left, right = (
            cast(RawOperand(numbers.bfloat16()), VALUES, keeps_rows=True, transposed=False)
            for numbers in (draw(number, 64, seed=number + micro_batch) for number in (rows, columns))
        )
        assert left.rows is not None and right.rows is not None
        reciprocals = left.reciprocal, right.reciprocal
        for together, weight in weights.items():
            weight.terms_together = together
            weight.add_fp8_product(left.rows, right.rows, reciprocals)
        sums += product(left.rows, right.rows, reciprocals, torch.bfloat16)
        terms = (left.rows.double() @ right.rows.double().t()) * float(reciprocals[0]) * float(reciprocals[1])
        exact += terms
        roundings += terms.abs() * 2**-8 + 1e-5
    assert ((sums.double() - exact).abs() <= roundings).all()
    for weight in weights.values():
        weight.add_terms()
        assert torch.equal(torch.cat([parameter.gradient for parameter in weight.parameters]), sums)


def test_products_wait_for_others(mesh: DeviceMesh) -> None:
    weight, rows = weight_of(masters("alone"), mesh), torch.ones(32, 16).to(VALUES)
    weight.terms_together = 3
    totals = []
    for _ in range(4):
        weight.add_fp8_product(rows, torch.ones(48, 16).to(VALUES), (torch.ones(()), torch.ones(())))
        totals.append(float(weight.parameters[0].gradient[0, 0]))
    assert totals == [0, 0, 48, 48]
