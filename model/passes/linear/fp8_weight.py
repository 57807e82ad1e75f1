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

from model.passes.linear.fp8_operand import VALUES, largest_value, product, scale_for, transpose_of
from model.passes.waits import data_parallel_collective
from model.passes.whole_parameter import Pair, WholeParameter

LARGEST_SUM = 64 << 20
"""Bytes of FP32 products that are made before they are added to a weight's gradient."""


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

    def move_to(self, room: Tensor) -> bool:
        """Keep the values in ``room`` from now on. Return False if they stay apart: the shards need rows behind the
        last one."""
        if room.shape != self._padded.shape:
            return False
        self._padded = self.value = room
        return True

    def put_own_rows(self) -> Pair | None:
        rows = self._padded.narrow(0, self._rank * self._rows_of_shard, self._rows_of_shard)
        torch.mul(self._shard, self.scale, out=rows[: self._shard.shape[0]])
        return None if self._shards == 1 else (self._padded.view(torch.uint8), rows.view(torch.uint8))

    def add_fp8_product(self, left_FT: Tensor, right_HT: Tensor, reciprocals: tuple[Tensor, Tensor]) -> None:
        """Add left right^T to the gradient [F, H], in FP32.

        The products cannot be summed in the kernel itself: they are made apart and added, some rows at a time.
        """
        sums = self._sums()
        rows = max(1, LARGEST_SUM // (16 * sums[0].nbytes)) * 16
        for left, part in zip(torch.split(left_FT, rows), torch.split(sums, rows), strict=True):
            terms = product(left, right_HT, reciprocals, torch.float32)
            part.copy_(terms) if self._fresh else part.add_(terms)
            del terms  # before the next product takes memory
        self._fresh = False


class Fp8Weight:
    """The weight of one product: the rows of some parameters side by side, with one scale."""

    def __init__(self, parameters: Sequence[Fp8Parameter]) -> None:
        self.parameters = parameters
        columns, first = [parameter.value.shape[0] for parameter in parameters], parameters[0].value
        self.rows = first if len(parameters) == 1 else first.new_empty(sum(columns), first.shape[1])
        """[F, H], for the forward pass."""
        self.transpose = first.new_empty(self.rows.shape[1], self.rows.shape[0])
        """[H, F], for the gradient of the input."""
        self.reciprocal = torch.ones((), device=first.device)
        """FP32 scalar: the weight over these numbers."""
        parts = zip(parameters, torch.split(self.rows, columns), strict=True) if len(parameters) > 1 else ()
        self._apart = [(parameter, part) for parameter, part in parts if not parameter.move_to(part)]

    def rescale(self, scale: Tensor) -> None:
        """Have the next gather cast by ``scale``."""
        for parameter in self.parameters:
            parameter.scale = scale
        self.reciprocal = scale.reciprocal()

    def refresh(self) -> None:
        """Called when the values have arrived."""
        for parameter, part in self._apart:
            part.view(torch.uint8).copy_(parameter.value.view(torch.uint8))
        transpose_of(self.rows, out=self.transpose)


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
    for weight, scale in zip(weights, scale_for(largest, VALUES).unbind(), strict=True):
        weight.rescale(scale)
