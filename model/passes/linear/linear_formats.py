"""The formats in which the linear layers of blocks compute: one row each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch.distributed.tensor import DTensor

from model.passes.linear.fp8_linear import Fp8Linear, Fp8LinearBf16Gradients
from model.passes.linear.fp8_weight import Fp8Parameter
from model.passes.linear.linear_pass import LinearPass, PlainLinear
from model.passes.whole_parameter import WholeParameter

LinearFormat = Literal["plain", "fp8", "fp8_bf16_gradients"]
"""plain: as the model's other values. fp8: all products in FP8. fp8_bf16_gradients: weight gradients in BF16."""


@dataclass(frozen=True)
class LinearRow:
    linear: Callable[..., LinearPass]
    """A linear layer; arguments as of :class:`PlainLinear`."""
    weight: Callable[[DTensor, torch.dtype], WholeParameter]
    """A linear layer's weight; arguments: the parameter, the type of the model's other values."""


LINEAR_FORMATS: Mapping[LinearFormat, LinearRow] = {
    "plain": LinearRow(PlainLinear, WholeParameter),
    "fp8": LinearRow(Fp8Linear, Fp8Parameter),
    "fp8_bf16_gradients": LinearRow(Fp8LinearBf16Gradients, Fp8Parameter),
}
