"""The matrix products of a block's linear layers, in the format of the model's other values.

In FP8: fp8_linear.py. Which linear layers compute in which format: linear_formats.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from model.passes.linear.fp8_weight import Fp8Weight
from model.passes.linear.joined_weight import JoinedWeight
from model.passes.linear.raw_operand import OperandGather, RawInput, RawOperand
from model.passes.tensor_group import TensorGroup
from model.passes.whole_parameter import WholeParameter


class LinearPass(Protocol):
    """Matrix products of one input, whose output columns lie side by side; with biases where the model has them.

    Inputs and gradients are cast once: ``input``, ``weight_input`` and ``gradient`` return them as the products take
    them, in a form that is the class's own. So the caller may free the tensor before the product.
    """

    casts: bool
    """True if that form of an input is worth keeping beside the input itself."""
    measures: bool
    """True if kernels that make inputs and gradients are to return their largest values, too."""
    fp8_weights: Sequence[Fp8Weight]
    """Weights whose scales are to be found before they are gathered."""

    def refresh(self) -> None:
        """Called after the weights have changed."""
        ...

    def gather_input(self, x_tH: RawOperand, group: TensorGroup) -> OperandGather:
        """Begin to gather an input's rows from all ranks of ``group``."""
        ...

    def gather_gradient(self, gradient_tF: RawOperand, group: TensorGroup) -> OperandGather:
        """Begin to gather the rows of the output's gradient."""
        ...

    def input(self, x: RawOperand, *, keeps: bool) -> Any:
        """Return an input of all tokens for :meth:`forward`. ``keeps``: and for :meth:`add_gradients`."""
        ...

    def forward(self, x: Any, *, keeps: bool) -> tuple[Tensor, Any]:
        """Return the output, and the input for :meth:`add_gradients`; unless ``keeps``, the value that
        :meth:`weight_input` takes when that is made again, or None."""
        ...

    def weight_input(self, x: RawInput, kept: Any) -> Any:
        """Return an input for :meth:`add_gradients`: the one ``kept`` or, if that is none, one made again by ``x``."""
        ...

    def gradient(self, gradient: RawOperand, of_bias: Tensor) -> Any:
        """Return the output's gradient for the two methods below, in their order. The gradients of the biases are the
        sums over the rows of ``of_bias``."""
        ...

    def backward(self, gradient: Any) -> Tensor:
        """Return the gradient of the input [T, H]."""
        ...

    def add_gradients(self, gradient: Any, x: Any) -> None:
        """Add to the parameters' gradients."""
        ...


class PlainLinear:
    """Products of BF16 or FP32 numbers, one for all weights where they are one matrix; inputs and gradients as they
    are."""

    casts = measures = False
    fp8_weights: Sequence[Fp8Weight] = ()

    def __init__(self, parameters: Mapping[str, WholeParameter], *names: str, adds_bias: bool = True) -> None:
        """``adds_bias``: False for all ranks but the first where the outputs of the ranks are summed."""
        self._weights = JoinedWeight.of([parameters[f"{name}.weight"] for name in names])
        self._bias = bias_of(parameters, names)
        self._adds_bias = adds_bias
        self._columns = [weight.value.shape[0] for weight in self._weights]

    def refresh(self) -> None:
        """Do nothing: no other tensor follows from the weights."""

    def gather_input(self, x_tH: RawOperand, group: TensorGroup) -> OperandGather:
        return OperandGather.of(x_tH, group)

    def gather_gradient(self, gradient_tF: RawOperand, group: TensorGroup) -> OperandGather:
        return OperandGather.of(gradient_tF, group)

    def input(self, x: RawOperand, *, keeps: bool) -> Tensor:
        return x.tensor

    def forward(self, x: Tensor, *, keeps: bool) -> tuple[Tensor, Tensor | None]:
        x_for_weights = x if keeps else None
        if self._bias is not None and self._adds_bias:
            return torch.addmm(self._bias.value, x, self._weights[0].value.t()), x_for_weights
        if len(self._weights) == 1:
            return torch.mm(x, self._weights[0].value.t()), x_for_weights
        out = torch.empty(x.shape[0], sum(self._columns), dtype=x.dtype, device=x.device)
        for weight, part in zip(self._weights, self._parts(out), strict=True):
            torch.mm(x, weight.value.t(), out=part)
        return out, x_for_weights

    def weight_input(self, x: RawInput, kept: Any) -> Any:
        return x().tensor if kept is None else kept

    def gradient(self, gradient: RawOperand, of_bias: Tensor) -> tuple[Tensor, Tensor]:
        return gradient.tensor, of_bias

    def backward(self, gradient: tuple[Tensor, Tensor]) -> Tensor:
        (part, weight), *products = zip(self._parts(gradient[0]), self._weights, strict=True)
        of_input = torch.mm(part, weight.value)
        for part, weight in products:
            of_input.addmm_(part, weight.value)
        return of_input

    def add_gradients(self, gradient: tuple[Tensor, Tensor], x: Tensor) -> None:
        for weight, part in zip(self._weights, self._parts(gradient[0]), strict=True):
            weight.add_product(part, x)
        if self._bias is not None:
            self._bias.add_rows(gradient[1])

    def _parts(self, whole_TF: Tensor) -> Sequence[Tensor]:
        """Return the columns of each product."""
        return [whole_TF] if len(self._columns) == 1 else torch.split(whole_TF, self._columns, dim=1)


def bias_of(parameters: Mapping[str, WholeParameter], names: Sequence[str]) -> WholeParameter | None:
    """Return the bias of a linear layer; None without one. Layers of several weights have none."""
    biases = [bias for name in names if (bias := parameters.get(f"{name}.bias")) is not None]
    assert len(biases) <= (1 if len(names) == 1 else 0)
    return biases[0] if biases else None
