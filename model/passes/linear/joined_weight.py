"""The weights of one product as one matrix: the rows of several parameters, each behind the other.

Each parameter is initialised, gathered, reduced, optimised and stored by itself; its values and its gradient are rows
of the matrix. So products of the same input are one: Llama's queries, keys and values, and its gate and up.
"""

from collections.abc import Sequence
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
        self.value = first if len(parameters) == 1 else first.new_empty(sum(self._columns), first.shape[1])
        if len(parameters) > 1:
            for parameter, part in zip(parameters, torch.split(self.value, self._columns), strict=True):
                parameter.move_to(part, self._place_gradients)

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
        if len(self._parameters) == 1:
            return self._parameters[0].sums()
        parts = [parameter.sums() for parameter in self._parameters]
        fresh = [part for part, is_fresh in parts if is_fresh]
        if len(fresh) < len(parts):
            for part in fresh:
                part.zero_()
        whole, _ = parts[0]  # the others lie behind it
        return whole.as_strided(self.value.shape, self.value.stride()), len(fresh) == len(parts)

    @property
    def scatters_each_pass(self) -> bool:
        return self._parameters[0].scatters_each_pass

    def put(self, terms_FH: Tensor) -> None:
        """Make the terms of a backward pass its gradient, in their format."""
        self._place(terms_FH, fresh=False)

    def _place_gradients(self) -> None:
        self._place(self.value.new_empty(self.value.shape, dtype=torch.float32), fresh=True)

    def _place(self, gradient_FH: Tensor, *, fresh: bool) -> None:
        for parameter, part in zip(self._parameters, torch.split(gradient_FH, self._columns), strict=True):
            parameter.place_gradient(part, fresh=fresh)
