"""The matrix products of a block's linear layers in FP8: outputs and gradients leave them in BF16.

Each input and each gradient is cast once: with the transpose that the weight gradient sums along, where it is kept or
computed again for that. All weights of a layer make one product.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from model.passes.linear.fp8_kernels import GRADIENTS, VALUES
from model.passes.linear.fp8_operand import Fp8Gather, Operand, cast, product
from model.passes.linear.fp8_weight import Fp8Parameter, Fp8Weight
from model.passes.linear.linear_pass import bias_of
from model.passes.linear.raw_operand import OperandGather, RawInput, RawOperand
from model.passes.tensor_group import TensorGroup
from model.passes.whole_parameter import WholeParameter


class Fp8Linear:
    """Products of FP8 numbers, with weight gradients among them."""

    casts = measures = True

    def __init__(self, parameters: Mapping[str, WholeParameter], *names: str, adds_bias: bool = True) -> None:
        """``adds_bias``: False for all ranks but the first where the outputs of the ranks are summed."""
        weights = [parameters[f"{name}.weight"] for name in names]
        self._weight = Fp8Weight([weight for weight in weights if isinstance(weight, Fp8Parameter)])
        assert len(self._weight.parameters) == len(names)
        self._bias = bias_of(parameters, names)
        self._adds_bias = adds_bias
        self.fp8_weights: Sequence[Fp8Weight] = (self._weight,)

    def refresh(self) -> None:
        self._weight.refresh()

    def gather_input(self, x_tH: RawOperand, group: TensorGroup) -> OperandGather:
        return Fp8Gather(x_tH, VALUES, group)

    def gather_gradient(self, gradient_tF: RawOperand, group: TensorGroup) -> OperandGather:
        return Fp8Gather(gradient_tF, GRADIENTS, group)

    def input(self, x: RawOperand, *, keeps: bool) -> Operand:
        return cast(x, VALUES, keeps_rows=True, transposed=keeps)

    def forward(self, x: Operand, *, keeps: bool) -> tuple[Tensor, Any]:
        """Of an input that is made again, its scale is kept: 8 bytes spare reading it for its largest value."""
        assert x.rows is not None
        bias = self._bias.value if self._bias is not None and self._adds_bias else None
        reciprocals = x.reciprocal, self._weight.reciprocal
        out = product(x.rows, self._weight.rows, reciprocals, torch.bfloat16, fast=True, bias=bias)
        x.rows = None
        return out, x if keeps else x.scale

    def weight_input(self, x: RawInput, kept: Any) -> Any:
        if isinstance(kept, Operand):
            return kept
        raw = x()
        return cast(raw if kept is None else raw._replace(scale=kept), VALUES, keeps_rows=False, transposed=True)

    def gradient(self, gradient: RawOperand, of_bias: Tensor) -> Operand:
        self._add_bias(of_bias)
        return cast(gradient, GRADIENTS, keeps_rows=True, transposed=True)

    def backward(self, gradient: Operand) -> Tensor:
        assert gradient.rows is not None
        reciprocals = gradient.reciprocal, self._weight.reciprocal
        of_input = product(gradient.rows, self._weight.transpose, reciprocals, torch.bfloat16)
        gradient.rows = None
        return of_input

    def add_gradients(self, gradient: Operand, x: Any) -> None:
        assert gradient.transpose is not None
        self._weight.add_fp8_product(gradient.transpose, x.transpose, (gradient.reciprocal, x.reciprocal))

    def _add_bias(self, of_bias: Tensor) -> None:
        """Add to the bias' gradient at once, so that the gradient in BF16 may be freed."""
        if self._bias is not None:
            self._bias.add_rows(of_bias)


class Fp8LinearBf16Gradients(Fp8Linear):
    """Products of FP8 numbers, but weight gradients from inputs and gradients in BF16.

    A GPU sums these products in FP32 in the kernel itself; another kernel has to add FP8 products.
    """

    casts = False

    def gather_input(self, x_tH: RawOperand, group: TensorGroup) -> OperandGather:
        return OperandGather.of(x_tH, group)

    def gather_gradient(self, gradient_tF: RawOperand, group: TensorGroup) -> OperandGather:
        return OperandGather.of(gradient_tF, group)

    def input(self, x: RawOperand, *, keeps: bool) -> Operand:
        operand = cast(x, VALUES, keeps_rows=True, transposed=False)
        operand.unscaled = x.tensor if keeps else None
        return operand

    def forward(self, x: Operand, *, keeps: bool) -> tuple[Tensor, Any]:
        out, _ = super().forward(x, keeps=keeps)
        return out, x.unscaled

    def weight_input(self, x: RawInput, kept: Any) -> Any:
        return x().tensor if kept is None else kept

    def gradient(self, gradient: RawOperand, of_bias: Tensor) -> Operand:
        self._add_bias(of_bias)
        operand = cast(gradient, GRADIENTS, keeps_rows=True, transposed=False)
        operand.unscaled = gradient.tensor
        return operand

    def add_gradients(self, gradient: Operand, x: Any) -> None:
        assert gradient.unscaled is not None
        self._weight.add_product(gradient.unscaled, x)
