"""Collectives of tensor parallelism that are begun at one point and waited for at another.

A pass through the model is a generator: it yields each collective whose result it needs next (``yield from
result_of(pending)``). :func:`run_together` lets another pass compute meanwhile, which hides the time of the collective.
A group of one rank begins no collective and yields none.
"""

import importlib
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from model.decoder_sizes import CopyEngines
from model.passes.waits import tensor_parallel_collective

T = TypeVar("T")

all_gather_single: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Named so from PyTorch 2.13 on."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A collective that was begun. ``result`` may be read after ``work.wait()``; at once where ``work`` is None."""

    result: Tensor
    work: Any = None
    source: Tensor | None = None
    """The tensor that is being sent, kept until the collective has read it."""


Passing = Generator[Pending, None, T]
"""A pass that yields the collectives whose results it needs next, and returns T."""


def result_of(pending: Pending) -> Passing[Tensor]:
    """Return the result of ``pending``; yield it first if it has a collective."""
    if pending.work is not None:
        yield pending
    return pending.result


def waited(pending: Pending) -> Tensor:
    """Return the result of ``pending``, which began several products ago, without letting another pass compute
    first."""
    if pending.work is not None:
        tensor_parallel_collective(pending.work)
    return pending.result


def together(*passes: Passing[Any]) -> Passing[list[Any]]:
    """Join passes to one pass that alternates between them at each collective; return their results.

    The order is the same on all ranks that make the same calls, as collectives demand.
    """
    results: list[Any] = [None] * len(passes)
    queue: deque[tuple[int, Passing[Any], Pending | None]] = deque(
        (number, single_pass, None) for number, single_pass in enumerate(passes)
    )
    while queue:
        number, single_pass, pending = queue.popleft()
        if pending is not None:
            yield pending
        try:
            queue.append((number, single_pass, next(single_pass)))
        except StopIteration as stop:
            results[number] = stop.value
    return results


def run_together(*passes: Passing[Any]) -> list[Any]:
    """Run passes to their ends as :func:`together` joins them; return their results."""
    joined_pass = together(*passes)
    while True:
        try:
            pending = next(joined_pass)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        tensor_parallel_collective(pending.work)


class CopiedWork:
    """The work of a message that copy engines carry, with a process group's method to wait."""

    def __init__(self, result: Tensor) -> None:
        self._result = result

    def wait(self) -> None:
        torch.ops._c10d_functional.wait_tensor(self._result)


def copied_gather(part: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, CopiedWork]:
    gathered = torch.ops.symm_mem._low_contention_all_gather(part, group.group_name)
    return gathered, CopiedWork(gathered)


def copied_reduce_scatter(terms: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, CopiedWork]:
    part = torch.ops.symm_mem._low_contention_reduce_scatter(terms, "sum", group.group_name)
    return part, CopiedWork(part)


class TensorGroup:
    """The tensor-parallel ranks: they share each layer, and each has consecutive rows of a sequence."""

    def __init__(self, mesh: DeviceMesh | None = None, copy_engines: CopyEngines = "none") -> None:
        """``copy_engines``: the messages that a GPU's copy engines carry, through memory that the GPUs of a machine
        share; the process group's library carries the others.

        Copy engines take no multiprocessors from the matrix products beside them; a kernel of NCCL does. The operators
        are PyTorch's low-contention collectives, in an interface that PyTorch calls private. A gather gives the same
        bits as NCCL's. A reduce-scatter copies the terms of all ranks and adds them up in a kernel at the end, in FP32
        and the order of ranks. Not tried on a GPU.
        """
        self.size = 1 if mesh is None else mesh.size()
        self.rank = 0 if self.size == 1 or mesh is None else mesh.get_local_rank()
        self.group = None if self.size == 1 or mesh is None else mesh.get_group()
        self._copies_gathers, self._copies_sums = copy_engines != "none", copy_engines == "all"
        if self.group is not None and self._copies_gathers:
            importlib.import_module("torch.distributed._symmetric_memory")  # defines the operators

    def gather(self, part: Tensor) -> Pending:
        """Begin to gather the rows of all ranks, in their order: [t, ...] to [T, ...]."""
        if self.group is None:
            return Pending(part)
        part = part.contiguous()
        if self._copies_gathers:
            return Pending(*copied_gather(part, self.group), part)
        gathered = torch.empty((part.shape[0] * self.size, *part.shape[1:]), dtype=part.dtype, device=part.device)
        return Pending(gathered, all_gather_single(gathered, part, group=self.group, async_op=True), part)

    def maximum(self, value: Tensor) -> Pending:
        """Begin to find the largest of the ranks' values; the result takes their place."""
        if self.group is None:
            return Pending(value)
        return Pending(value, dist.all_reduce(value, dist.ReduceOp.MAX, group=self.group, async_op=True))

    def reduce_scatter(self, terms: Tensor) -> Pending:
        """Begin to sum over ranks; the result is this rank's rows of the sum: [T, ...] to [t, ...]."""
        if self.group is None:
            return Pending(terms)
        if self._copies_sums:
            return Pending(*copied_reduce_scatter(terms, self.group), terms)
        rows = terms.shape[0] // self.size
        part = torch.empty((rows, *terms.shape[1:]), dtype=terms.dtype, device=terms.device)
        return Pending(part, reduce_scatter_single(part, terms, group=self.group, async_op=True), terms)
