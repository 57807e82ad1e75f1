"""Tensors in FP8: what a cast keeps, and products of the numbers that it leaves."""

import math

import pytest
import torch
from torch import Tensor

from model.passes.linear.fp8_kernels import GRADIENTS, VALUES, largest_value, scale_for, transpose_of
from model.passes.linear.fp8_operand import cast, product
from model.passes.linear.raw_operand import RawOperand
from tests.model.passes.on_mesh import draw

BOTH = pytest.mark.parametrize("dtype", [VALUES, GRADIENTS], ids=["e4m3", "e5m2"])
LARGEST = {VALUES: 448.0, GRADIENTS: 57344.0}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return draw(*shape, seed=seed).bfloat16()


def restored(rows: Tensor | None, reciprocal: Tensor) -> Tensor:
    """The numbers that FP8 ones stand for."""
    assert rows is not None
    return rows.double() * reciprocal.double()


@pytest.mark.parametrize("largest", [1e-30, 2.0**-9, 0.3, 1.0, 447.9, 448.0, 448.1, 57344.0, 6e4, 3e38])
@BOTH
def test_scales_are_the_largest_powers_of_two_that_fit(dtype: torch.dtype, largest: float) -> None:
    number = torch.tensor(largest)
    scale, reciprocal = scale_for(number, dtype)
    assert float(scale) * float(reciprocal) == 1
    assert math.frexp(float(scale))[0] == 0.5
    assert float(scale) * float(number) <= LARGEST[dtype] < 2 * float(scale) * float(number)


@BOTH
def test_numbers_are_rounded_as_a_format_of_so_many_bits_does(dtype: torch.dtype) -> None:
    """E4M3 has 4 significant bits, E5M2 has 3: half a unit of the last one is 2^-4 or 2^-3 of a number."""
    x = drawn(48, 32)
    operand = cast(RawOperand(x), dtype, keeps_rows=True, transposed=True)
    off = (restored(operand.rows, operand.reciprocal) - x.double()).abs()
    relative = 2.0**-4 if dtype == VALUES else 2.0**-3
    assert bool((off <= relative * x.double().abs() + 2.0**-10 * float(operand.reciprocal)).all())
    assert float(off.max()) > 0
    assert operand.rows is not None and operand.transpose is not None
    assert torch.equal(operand.transpose.double(), operand.rows.double().t())


SPECIAL: dict[str, tuple[list[float], list[float]]] = {
    "zeros": ([0.0, 0.0, -0.0, 0.0], [0.0, 0.0, 0.0, 0.0]),
    "one huge value": ([3e38, 1.0, 0.0, -1e37], [3.0e38, 0.0, 0.0, -1.0e37]),
    "subnormals of BF16": ([1e-39, -1e-40, 0.0, 9e-41], [0.0, 0.0, 0.0, 0.0]),
    "small numbers": ([2.0**-90, -(2.0**-92), 0.0, 2.0**-91], [2.0**-90, -(2.0**-92), 0.0, 2.0**-91]),
    "an infinity": ([1.0, math.inf, 2.0, 0.0], [math.nan] * 4),
    "a negative infinity": ([1.0, -math.inf, 2.0, 0.0], [math.nan] * 4),
    "a NaN": ([1.0, math.nan, 2.0, 0.0], [math.nan] * 4),
}


@pytest.mark.parametrize(("numbers", "expected"), SPECIAL.values(), ids=SPECIAL)
@BOTH
def test_special_numbers(dtype: torch.dtype, numbers: list[float], expected: list[float]) -> None:
    """E4M3 has no infinity: a tensor with one is NaN throughout, and so is its product with anything."""
    x = torch.tensor(numbers, dtype=torch.bfloat16).expand(16, 4).repeat(1, 4)
    operand = cast(RawOperand(x), dtype, keeps_rows=True, transposed=True)
    found = restored(operand.rows, operand.reciprocal)[0, :4]
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=0.07, atol=2e-39, equal_nan=True)
    other = cast(RawOperand(drawn(32, 16)), VALUES, keeps_rows=True, transposed=False)
    assert operand.rows is not None and other.rows is not None
    out = product(operand.rows, other.rows, (operand.reciprocal, other.reciprocal), torch.bfloat16)
    assert bool(out.isnan().all()) == any(map(math.isnan, expected))
    assert bool(out.isfinite().all()) != any(map(math.isnan, expected)) or numbers[0] == 3e38


def test_a_tensor_without_values_is_as_one_of_zeros() -> None:
    assert float(largest_value(torch.zeros(0, 8))) == float(largest_value(torch.zeros(3, 8))) == 0


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("left_dtype", [VALUES, GRADIENTS], ids=["e4m3", "e5m2"])
@pytest.mark.parametrize("biased", [False, True])
def test_products_are_those_of_the_rounded_numbers(left_dtype: torch.dtype, fast: bool, biased: bool) -> None:
    left = cast(RawOperand(drawn(48, 64)), left_dtype, keeps_rows=True, transposed=False)
    right = cast(RawOperand(drawn(32, 64, seed=1) * 30), VALUES, keeps_rows=True, transposed=False)
    bias = drawn(32, seed=2) if biased else None
    assert left.rows is not None and right.rows is not None
    reciprocals = left.reciprocal, right.reciprocal
    exact = restored(left.rows, left.reciprocal) @ restored(right.rows, right.reciprocal).t()
    exact = exact if bias is None else exact + bias.double()
    for dtype, digits in ((torch.bfloat16, 2.0**-8), (torch.float32, 2.0**-18)):
        if bias is not None and dtype == torch.float32:
            continue
        out = product(left.rows, right.rows, reciprocals, dtype, fast=fast, bias=bias)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), exact, rtol=digits, atol=digits * 1e-2)


def test_tensor_parallel_ranks_round_as_one_rank_does() -> None:
    """Their parts have different largest values, and so different scales; all numbers but the smallest come out the
    same."""
    whole = drawn(64, 32) * torch.logspace(0, 1, 32).bfloat16()
    scales, columns = set(), []
    for part in whole.chunk(2, dim=1):
        operand = cast(RawOperand(part), VALUES, keeps_rows=True, transposed=False)
        scales.add(float(operand.reciprocal))
        columns.append(restored(operand.rows, operand.reciprocal))
    once = cast(RawOperand(whole), VALUES, keeps_rows=True, transposed=False)
    smallest_normal = 2.0**-6 * float(once.reciprocal)
    difference = (torch.cat(columns, dim=1) - restored(once.rows, once.reciprocal)).abs()
    assert len(scales) == 2
    assert bool((difference[whole.double().abs() >= smallest_normal] == 0).all())
    assert float(difference.max()) <= smallest_normal


def test_a_transpose_is_a_tensor_of_its_own() -> None:
    rows = cast(RawOperand(drawn(16, 48)), VALUES, keeps_rows=True, transposed=False).rows
    assert rows is not None
    transpose = transpose_of(rows)
    assert torch.equal(transpose.double(), rows.double().t()) and transpose.is_contiguous()
