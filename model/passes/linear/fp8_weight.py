"""Weights in FP8: cast once a step from the FP32 master weights, by the largest value over all shards.

The ranks agree on the largest values of all weights in one small message. Then each casts its own shard, and the shards
are gathered in FP8. A cast of gathered BF16 weights would round twice, and would need them in memory beside the FP8
ones; the gathers would be twice as long.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from model.passes.linear.fp8_kernels import VALUES, add_terms, largest_value, put_terms, scale_for, transpose_of
from model.passes.linear.fp8_operand import product
from model.passes.linear.joined_weight import JoinedWeight
from model.passes.waits import data_parallel_collective
from model.passes.whole_parameter import Pair, WholeParameter


class Fp8Parameter(WholeParameter):
    """A matrix whose values are FP8 numbers. Its gradient is FP32, as any parameter's."""

    def __init__(self, parameter: DTensor, _: torch.dtype) -> None:
        super().__init__(parameter, VALUES)
        self.scale = torch.ones((), device=self.value.device)
        """FP32 scalar: the FP8 numbers over the master weights, before they are rounded."""

    @property
    def shard_group(self) -> dist.ProcessGroup | None:
        """The ranks with the other shards; None if there is one shard."""
        return None if self._shards == 1 else self.parameter.device_mesh.get_group("shard")

    def largest_of_shard(self) -> Tensor:
        return largest_value(self._shard)

    def put_own_rows(self) -> Pair | None:
        rows = self._padded.narrow(0, self._rank * self._rows_of_shard, self._rows_of_shard)
        torch.mul(self._shard, self.scale, out=rows[: self._shard.shape[0]])
        return None if self._shards == 1 else (self._padded.view(torch.uint8), rows.view(torch.uint8))


class Fp8Weight:
    """The weight of one product, with one scale: the rows of some parameters, each behind the other."""

    def __init__(self, parameters: Sequence[Fp8Parameter]) -> None:
        self.parameters = parameters
        self._matrices = JoinedWeight.of(parameters)
        """The parameters' values and gradients: one matrix, or one for each where they stay apart."""
        columns, first = [len(matrix.value) for matrix in self._matrices], self._matrices[0].value
        self.rows = first if len(columns) == 1 else first.new_empty(sum(columns), first.shape[1])
        """[F, H], for the forward pass."""
        self.transpose = first.new_empty(self.rows.shape[1], self.rows.shape[0])
        """[H, F], for the gradient of the input."""
        self.reciprocal = torch.ones((), device=first.device)
        """FP32 scalar: the weight over these numbers."""
        self.terms_together = 1
        """Products of micro-batches that are added to the gradient at once; all but the last wait in memory."""
        self._terms: list[Tensor] = []  # BF16 [F, H]
        self._columns = columns

    def rescale(self, scale: Tensor, reciprocal: Tensor) -> None:
        """Have the next gather cast by ``scale``."""
        for parameter in self.parameters:
            parameter.scale = scale
        self.reciprocal = reciprocal

    def refresh(self) -> None:
        """Called when the values have arrived."""
        if len(self._matrices) > 1:
            for matrix, part in zip(self._matrices, torch.split(self.rows, self._columns), strict=True):
                part.view(torch.uint8).copy_(matrix.value.view(torch.uint8))
        del self.transpose  # the new one takes its memory
        self.transpose = transpose_of(self.rows)

    def add_product(self, left_TF: Tensor, right_TH: Tensor) -> None:
        """Add left^T right, of BF16 numbers, to the gradient [F, H]."""
        for matrix, left in zip(self._matrices, torch.split(left_TF, self._columns, dim=1), strict=True):
            matrix.add_product(left, right_TH)

    def add_fp8_product(self, left_FT: Tensor, right_HT: Tensor, reciprocals: tuple[Tensor, Tensor]) -> None:
        """Add left right^T, rounded to BF16, to the FP32 gradient [F, H], as soon as ``terms_together`` of these terms
        are there: the product's kernel cannot add, and another one reads and writes the gradient once for all of them.

        Rounding a product changes a number by at most 2^-8 of itself; the FP8 operands were rounded by up to 2^-4 and
        2^-3. Where gradients are summed over the ranks after each pass, the terms travel, and are summed, in BF16, as
        published FP8 runs do (docs/facts/fp8.md 2); the passes' sums are added in FP32.
        """
        terms = product(left_FT, right_HT, reciprocals, torch.bfloat16)
        if self._matrices[0].scatters_each_pass:
            for matrix, part in zip(self._matrices, torch.split(terms, self._columns), strict=True):
                matrix.put(part)
            return
        self._terms.append(terms)
        if len(self._terms) == self.terms_together:
            self.add_terms()

    def add_terms(self) -> None:
        """Add the terms that wait, in their order: their number changes no bit of the sum."""
        terms, self._terms = self._terms, []
        if not terms:
            return
        as_proved = len(self._matrices) == 1 and len(terms) == self.terms_together
        parts_of_matrices = zip(*(torch.split(term, self._columns) for term in terms), strict=True)
        for matrix, parts in zip(self._matrices, parts_of_matrices, strict=True):
            sums, fresh = matrix.sums()
            kernel = put_terms if fresh else add_terms
            # nothing is compiled in a step, for a number or a shape that was not proved
            (kernel if as_proved else kernel.function)(sums, *parts)


def rescale(weights: Sequence[Fp8Weight]) -> None:
    """Find the scale of each weight before its values are gathered. Collective over the shards, once a step."""
    if not weights:
        return
    of_weights = [torch.stack([part.largest_of_shard() for part in weight.parameters]).amax() for weight in weights]
    largest = torch.stack(of_weights)
    group = weights[0].parameters[0].shard_group
    if group is not None:
        # The maximum of a number and NaN may be either; that of a number and infinity is infinity on all ranks.
        largest = torch.where(torch.isfinite(largest), largest, torch.inf)
        data_parallel_collective(dist.all_reduce(largest, dist.ReduceOp.MAX, group=group, async_op=True))
    scales, reciprocals = scale_for(largest, VALUES)
    for weight, scale, reciprocal in zip(weights, scales.unbind(), reciprocals.unbind(), strict=True):
        weight.rescale(scale, reciprocal)
