"""Collectives of tensor parallelism that are begun at one point and waited for at another.

A pass through the model is a generator: it yields a collective that it has begun and cannot go on without
(``yield from needed(pending)``). Whoever runs it lets something else compute meanwhile (:func:`run_together`), so that
the time of a collective is hidden behind other work. A group of one rank begins nothing and yields nothing.
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
"""A pass that yields collectives it needs next, and returns T."""


def needed(pending: Pending) -> Passing[Tensor]:
    """The result of ``pending``."""
    if pending.work is not None:
        yield pending
    return pending.result


def together(*passes: Passing[Any]) -> Passing[list[Any]]:
    """Passes as one, which take turns wherever one waits for a collective; what they return.

    The order is the same on all ranks that make the same calls, as collectives demand.
    """
    results: list[Any] = [None] * len(passes)
    turns: deque[tuple[int, Passing[Any], Pending | None]] = deque((n, one, None) for n, one in enumerate(passes))
    while turns:
        number, one, pending = turns.popleft()
        if pending is not None:
            yield pending
        try:
            turns.append((number, one, next(one)))
        except StopIteration as stop:
            results[number] = stop.value
    return results


def run_together(*passes: Passing[Any]) -> list[Any]:
    """Run passes to their ends as :func:`together` does; what they return."""
    whole = together(*passes)
    while True:
        try:
            pending = next(whole)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        tensor_parallel_collective(pending.work)


class CopiedWork:
    """A wait for a message that copy engines carry, as for a process group's work."""

    def __init__(self, result: Tensor) -> None:
        self._result = result

    def wait(self) -> None:
        torch.ops._c10d_functional.wait_tensor(self._result)


def copied_gather(part: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, CopiedWork]:
    whole = torch.ops.symm_mem._low_contention_all_gather(part, group.group_name)
    return whole, CopiedWork(whole)


def copied_reduce_scatter(terms: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, CopiedWork]:
    part = torch.ops.symm_mem._low_contention_reduce_scatter(terms, "sum", group.group_name)
    return part, CopiedWork(part)


class TensorGroup:
    """The ranks that share each layer; neighbours of a sequence, whose parts are rows one behind the other."""

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
        """Rows of all ranks, in their order: [t, ...] to [T, ...]."""
        if self.group is None:
            return Pending(part)
        part = part.contiguous()
        if self._copies_gathers:
            return Pending(*copied_gather(part, self.group), part)
        whole = torch.empty((part.shape[0] * self.size, *part.shape[1:]), dtype=part.dtype, device=part.device)
        return Pending(whole, all_gather_single(whole, part, group=self.group, async_op=True), part)

    def reduce_scatter(self, terms: Tensor) -> Pending:
        """This rank's rows of the sum over ranks: [T, ...] to [t, ...]."""
        if self.group is None:
            return Pending(terms)
        if self._copies_sums:
            return Pending(*copied_reduce_scatter(terms, self.group), terms)
        rows = terms.shape[0] // self.size
        part = torch.empty((rows, *terms.shape[1:]), dtype=terms.dtype, device=terms.device)
        return Pending(part, reduce_scatter_single(part, terms, group=self.group, async_op=True), terms)
