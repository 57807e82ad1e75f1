"""The matrix products of a block's linear layers in FP8: outputs and gradients leave them in BF16.

Each input and each gradient is cast once: with the transpose that the weight gradient sums along, where it is kept or
computed again for that. All weights of a layer make one product.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from model.passes.linear.fp8_kernels import GRADIENTS, VALUES
from model.passes.linear.fp8_operand import Operand, cast, product
from model.passes.linear.fp8_weight import Fp8Parameter, Fp8Weight
from model.passes.linear.linear_pass import bias_of
from model.passes.whole_parameter import WholeParameter


class Fp8Linear:
    """Products of FP8 numbers, with weight gradients among them."""

    casts = True

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

    def input(self, x_TH: Tensor, *, keeps: bool) -> Operand:
        return cast(x_TH, VALUES, keeps_rows=True, transposed=keeps)

    def forward(self, x: Operand, *, keeps: bool) -> tuple[Tensor, Any]:
        assert x.rows is not None
        bias = self._bias.value if self._bias is not None and self._adds_bias else None
        reciprocals = x.reciprocal, self._weight.reciprocal
        out = product(x.rows, self._weight.rows, reciprocals, torch.bfloat16, fast=True, bias=bias)
        x.rows = None
        return out, x if keeps else None

    def weight_input(self, x_TH: Tensor) -> Any:
        return cast(x_TH, VALUES, keeps_rows=False, transposed=True)

    def gradient(self, gradient_TF: Tensor, of_bias: Tensor) -> Operand:
        self._add_bias(of_bias)
        return cast(gradient_TF, GRADIENTS, keeps_rows=True, transposed=True)

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

    def input(self, x_TH: Tensor, *, keeps: bool) -> Operand:
        x = cast(x_TH, VALUES, keeps_rows=True, transposed=False)
        x.unscaled = x_TH if keeps else None
        return x

    def forward(self, x: Operand, *, keeps: bool) -> tuple[Tensor, Any]:
        out, _ = super().forward(x, keeps=keeps)
        return out, x.unscaled

    def weight_input(self, x_TH: Tensor) -> Any:
        return x_TH

    def gradient(self, gradient_TF: Tensor, of_bias: Tensor) -> Operand:
        self._add_bias(of_bias)
        gradient = cast(gradient_TF, GRADIENTS, keeps_rows=True, transposed=False)
        gradient.unscaled = gradient_TF
        return gradient

    def add_gradients(self, gradient: Operand, x: Any) -> None:
        assert gradient.unscaled is not None
        self._weight.add_product(gradient.unscaled, x)
