"""Parameters that travel together: one message gathers their values, and one sums their gradients, once a step.

Groups are used one after the other. In the first forward pass of a step the values of a group travel while the group
before it computes. In the last backward pass its gradients travel while the group before it computes theirs. So the
values and the gradients of the first group alone travel with no computation beside them. Where gradients are summed
after each backward pass, those of the first group travel beside the next passes.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from model.passes.pass_sizes import group_starts
from model.passes.tensor_group import all_gather_single, reduce_scatter_single
from model.passes.waits import data_parallel_collective, tensor_parallel_collective
from model.passes.whole_parameter import Pair, WholeParameter


class ParameterGroup:
    """Parameters whose values are gathered, and whose gradients are reduced, in one message each a step (ZeRO 1).

    A message of many tensors is one kernel of NCCL. Tensor parallelism asks for one hardware queue
    (benchmark/config/runtime_variables.py). In it a second kernel would hold up all later computations until the first
    has ended. So the gather of the next group begins when the values of this one have arrived.
    """

    def __init__(self, parameters: Sequence[WholeParameter], refreshes: Sequence[Callable[[], None]] = ()) -> None:
        """``refreshes``: called when the values have arrived."""
        self._parameters, self._refreshes = list(parameters), refreshes
        mesh = self._parameters[0].parameter.device_mesh
        self._replica_group, self._tensor_group, self._shard_group = (
            group if group.size() > 1 else None for group in mesh.get_all_groups()
        )
        self._works: list[Any] = []  # of the messages that have begun
        self._arriving = False
        self.following: ParameterGroup | None = None
        """The group whose values are needed next in a step."""

    def begin_gather(self) -> None:
        """Begin to collect the values of all shards. Collective, as are the following."""
        pairs = [pair for parameter in self._parameters if (pair := parameter.put_own_rows()) is not None]
        if self._shard_group is not None and pairs:
            self._works = [gather_all(pairs, self._shard_group)]
        self._arriving = True

    def end_gather(self) -> None:
        """Wait for the values, which may be read from here on, and begin the gather of the following group. Nothing
        happens if the values have arrived already."""
        if not self._arriving:
            return
        self._wait()
        for refresh in self._refreshes:
            refresh()
        self._arriving = False
        if self.following is not None:
            self.following.begin_gather()

    def begin_reduce(self, *, last: bool = True) -> None:
        """Begin to sum the gradients of all ranks. They must be complete. ``last``: of a step; before that, those alone
        that are summed after each backward pass."""
        if last and self._tensor_group is not None:
            terms = [sums for parameter in self._parameters if (sums := parameter.terms()) is not None]
            if terms:
                tensor_parallel_collective(sum_all(terms, self._tensor_group))
        parameters = [parameter for parameter in self._parameters if last or parameter.scatters_each_pass]
        pairs = [pair for parameter in parameters if (pair := parameter.to_scatter()) is not None]
        if self._shard_group is not None:
            self._works = scatter_all(pairs, self._shard_group)

    def end_scatter(self) -> None:
        """Wait for the sums over shards that have begun, if any, and free what travelled."""
        self._wait()
        for parameter in self._parameters:
            parameter.end_scatter()

    def begin_reduce_replicas(self) -> None:
        """After :meth:`begin_reduce` of all groups: go on with the sum over replicas."""
        self.end_scatter()
        if self._replica_group is not None:
            self._works = [sum_all([parameter.shard_sum() for parameter in self._parameters], self._replica_group)]

    def end_reduce(self) -> None:
        """Wait for the sums, which become the gradients of the parameters."""
        self._wait()
        for parameter in self._parameters:
            parameter.publish_gradient()

    def _wait(self) -> None:
        for work in self._works:
            data_parallel_collective(work)
        self._works = []


@dataclass(frozen=True)
class GroupedLayer:
    """Parameters that are used together, and the function to call when their values have arrived."""

    parameters: list[WholeParameter]
    refresh: Callable[[], None]


def grouped(layers: Sequence[GroupedLayer], least_weights: int | None) -> list[ParameterGroup]:
    """Return the group of each layer. ``layers``: in the order of the forward pass.

    ``least_weights``: of a group, as in :func:`group_starts`.
    """
    weights = [sum(parameter.value.numel() for parameter in layer.parameters) for layer in layers]
    starts = group_starts(weights, least_weights)
    groups: list[ParameterGroup] = []
    for first, end in itertools.pairwise([*starts, len(layers)]):
        members = layers[first:end]
        parameters = [parameter for layer in members for parameter in layer.parameters]
        groups += [ParameterGroup(parameters, [layer.refresh for layer in members])] * len(members)
    for group, following in itertools.pairwise(dict.fromkeys(groups)):
        group.following = following
    return groups


def gather_all(pairs: Sequence[Pair], group: dist.ProcessGroup) -> Any:
    """Begin an all-gather of each pair, in one message; return its work.

    The tensors of a message have one type: those of several types travel as bytes.
    """
    if len({shard.dtype for _, shard in pairs}) > 1:
        pairs = [(output.view(torch.uint8), shard.view(torch.uint8)) for output, shard in pairs]
    with distributed_c10d._coalescing_manager(group=group, async_ops=True) as begun:
        for output, shard in pairs:
            all_gather_single(output, shard, group=group)
    return begun


def scatter_all(pairs: Sequence[Pair], group: dist.ProcessGroup) -> list[Any]:
    """Begin a reduce-scatter of each pair, in one message for each type of tensors; return their works.

    The smaller message goes first: the other one may hold up computations until it has ended (ParameterGroup).
    """
    by_type: dict[torch.dtype, list[Pair]] = {}
    for output, terms in pairs:
        by_type.setdefault(terms.dtype, []).append((output, terms))
    works = []
    for message in sorted(by_type.values(), key=lambda message: sum(terms.nbytes for _, terms in message)):
        with distributed_c10d._coalescing_manager(group=group, async_ops=True) as begun:
            for output, terms in message:
                reduce_scatter_single(output, terms, group=group)
        works.append(begun)
    return works


def sum_all(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> Any:
    """Begin to sum each tensor over the group, in place, in one message; return its work."""
    with distributed_c10d._coalescing_manager(group=group, async_ops=True) as begun:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return begun
