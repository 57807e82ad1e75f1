"""The weights of one product as one matrix: the rows of several parameters, each behind the other.

Each parameter is initialised, gathered, reduced, optimised and stored by itself; its values and its gradient are rows
of the matrix. So products of the same input are one: Llama's queries, keys and values, and its gate and up.
"""

from collections.abc import Sequence
from functools import partial
from typing import Self

import torch
from torch import Tensor

from model.kernels import add_product, put_product
from model.passes.whole_parameter import WholeParameter


class JoinedWeight:
    """A matrix [F, H] of the rows of its parameters."""

    def __init__(self, parameters: Sequence[WholeParameter]) -> None:
        self._parameters, first = parameters, parameters[0].value
        self._columns = [parameter.value.shape[0] for parameter in parameters]
        self._gradient: Tensor | None = None  # FP32 [F, H] of several parameters; made when it is first needed
        self.value = first if len(parameters) == 1 else first.new_empty(sum(self._columns), first.shape[1])
        if len(parameters) > 1:
            parts = torch.split(self.value, self._columns)
            for number, (parameter, part) in enumerate(zip(parameters, parts, strict=True)):
                parameter.move_to(part, partial(self._gradient_part, number))

    @classmethod
    def of(cls, parameters: Sequence[WholeParameter]) -> Sequence[Self]:
        """Return one matrix of all parameters or, where their shards leave rows behind the last or are the values
        themselves (one shard in FP32), a matrix for each."""
        joins = all(parameter.is_movable for parameter in parameters)
        return [cls(parameters)] if joins else [cls([parameter]) for parameter in parameters]

    def add_product(self, left_TF: Tensor, right_TH: Tensor) -> None:
        """Add left^T right to the gradient."""
        sums, fresh = self.sums()
        (put_product if fresh else add_product)(sums, left_TF, right_TH)

    def sums(self) -> tuple[Tensor, bool]:
        """Return the FP32 sums [F, H] for the caller to add to, and True if the caller is to overwrite them."""
        parts = [parameter.sums() for parameter in self._parameters]
        if len(parts) == 1:
            return parts[0]
        fresh = [part for part, is_fresh in parts if is_fresh]
        if len(fresh) < len(parts):
            for part in fresh:
                part.zero_()
        return self._whole_gradient(), len(fresh) == len(parts)

    def _gradient_part(self, number: int) -> Tensor:
        return torch.split(self._whole_gradient(), self._columns)[number]

    def _whole_gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = torch.zeros(self.value.shape, dtype=torch.float32, device=self.value.device)
        return self._gradient
