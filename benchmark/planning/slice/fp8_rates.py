"""The products and passes over memory that a step in FP8 has besides those of BF16, as the training code makes them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmark.planning.run_plan.calibration import FP8_CAST, FP8_TRANSPOSE, MatmulRole
from benchmark.planning.step_model.fp8_operands import READ_BYTES, TRANSPOSE_BYTES
from model.passes.linear.fp8_kernels import GRADIENTS, VALUES, transpose_of
from model.passes.linear.fp8_operand import Operand, cast, product
from model.passes.linear.raw_operand import RawOperand

Passes = dict[str, tuple[int, Callable[[], object]]]
"""Bytes read and written, and the call, by operation."""


class Fp8Layer:
    """Random operands of the products of a layer: input, gradient of the output, weight."""

    def __init__(self, tokens: int, inputs: int, outputs: int, device: torch.device) -> None:
        def operand(rows: int, columns: int, dtype: torch.dtype) -> Operand:
            numbers = torch.randn(rows, columns, device=device, dtype=torch.bfloat16)
            return cast(RawOperand(numbers), dtype, keeps_rows=True, transposed=True)

        self._x = operand(tokens, inputs, VALUES)
        self._gradient = operand(tokens, outputs, GRADIENTS)
        self._weight = operand(outputs, inputs, VALUES)

    def products(self, *, weight_gradients: bool) -> dict[MatmulRole, Callable[[], Tensor]]:
        """Return the products that are FP8 products in a run, by role; those of weights if ``weight_gradients``."""
        forward, of_input, of_weight = (self._operands(role) for role in ROLES)
        calls: dict[MatmulRole, Callable[[], Tensor]] = {
            "forward": partial(product, *forward, torch.bfloat16, fast=True),
            "input gradient": partial(product, *of_input, torch.bfloat16),
        }
        if weight_gradients:  # another kernel adds these products
            calls["weight gradient"] = partial(product, *of_weight, torch.bfloat16)
        return calls

    def exact(self, role: MatmulRole) -> Tensor:
        """Return the FP64 product of the same FP8 numbers."""
        left, right, reciprocals = self._operands(role)
        first, second = reciprocals
        return (left.double() @ right.double().t()) * (first.double() * second.double())

    def _operands(self, role: MatmulRole) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Return two matrices, of which the second is transposed for the product, and their reciprocals."""
        x, gradient, weight = self._x, self._gradient, self._weight
        left, right, operands = {
            "forward": (x.rows, weight.rows, (x, weight)),
            "input gradient": (gradient.rows, weight.transpose, (gradient, weight)),
            "weight gradient": (gradient.transpose, x.transpose, (gradient, x)),
        }[role]
        assert left is not None and right is not None
        return left, right, (operands[0].reciprocal, operands[1].reciprocal)


ROLES: tuple[MatmulRole, ...] = ("forward", "input gradient", "weight gradient")


def fp8_passes(x_TF: Tensor) -> Passes:
    """Return the passes over memory of operands: the cast of ``x_TF``, and the transpose of FP8 numbers."""
    rows = x_TF.to(VALUES)
    return {
        FP8_CAST: (
            (READ_BYTES + 1) * x_TF.numel(),
            partial(cast, RawOperand(x_TF), VALUES, keeps_rows=True, transposed=False),
        ),
        FP8_TRANSPOSE: (TRANSPOSE_BYTES * x_TF.numel(), partial(transpose_of, rows)),
    }
