"""The parameters of a part of the model as a distributed optimizer has them (ZeRO 1): gathered and reduced once a step.

All of a part goes in one message of many tensors, which is one kernel of NCCL: with one hardware queue, which tensor
parallelism asks for (benchmark/config/runtime_variables.py), a second kernel would hold up every computation handed
over after it until the first has ended.
"""

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from model.passes.tensor_group import all_gather_single, reduce_scatter_single
from model.passes.waits import data_parallel_collective, tensor_parallel_collective
from model.passes.whole_parameter import WholeParameter

Pair = tuple[Tensor, Tensor]
"""Output and input of a collective."""


class PartParameters:
    """Gathers values and reduces gradients of parameters that share their mesh."""

    def __init__(self, parameters: Sequence[WholeParameter]) -> None:
        self._parameters = list(parameters)
        mesh = self._parameters[0].parameter.device_mesh
        self._replica_group, self._tensor_group, self._shard_group = (
            group if group.size() > 1 else None for group in mesh.get_all_groups()
        )
        self._work: Any = None

    def begin_gather(self) -> None:
        """Begin to collect the values of all shards. Collective, as are the following."""
        pairs = [pair for one in self._parameters if (pair := one.put_own_rows()) is not None]
        self._work = gather_all(pairs, self._shard_group) if self._shard_group is not None and pairs else None

    def end_gather(self) -> None:
        """Values may be read from here on."""
        self._wait()

    def begin_reduce(self) -> None:
        """Begin to sum the gradients of all ranks; nothing may be added any more."""
        if self._tensor_group is not None:
            terms = [sums for one in self._parameters if (sums := one.terms()) is not None]
            if terms:
                tensor_parallel_collective(sum_all(terms, self._tensor_group))
        pairs = [pair for one in self._parameters if (pair := one.to_scatter()) is not None]
        if self._shard_group is not None:
            self._work = scatter_all(pairs, self._shard_group)

    def begin_reduce_replicas(self) -> None:
        """After :meth:`begin_reduce` of all parts: go on with the sum over replicas."""
        self._wait()
        if self._replica_group is not None:
            self._work = sum_all([one.shard_sum() for one in self._parameters], self._replica_group)

    def end_reduce(self) -> None:
        """The sums are there: they become the gradients of the parameters."""
        self._wait()
        for one in self._parameters:
            one.publish_gradient()

    def _wait(self) -> None:
        if self._work is not None:
            data_parallel_collective(self._work)
            self._work = None


def gather_all(pairs: Sequence[Pair], group: dist.ProcessGroup) -> Any:
    """Begin an all-gather of each pair, in one message; to be waited for."""
    with distributed_c10d._coalescing_manager(group=group, async_ops=True) as begun:
        for output, own in pairs:
            all_gather_single(output, own, group=group)
    return begun


def scatter_all(pairs: Sequence[Pair], group: dist.ProcessGroup) -> Any:
    """Begin a reduce-scatter of each pair, in one message; to be waited for."""
    with distributed_c10d._coalescing_manager(group=group, async_ops=True) as begun:
        for output, terms in pairs:
            reduce_scatter_single(output, terms, group=group)
    return begun


def sum_all(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> Any:
    """Begin to sum each tensor over the group, in place, in one message; to be waited for."""
    with distributed_c10d._coalescing_manager(group=group, async_ops=True) as begun:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return begun
